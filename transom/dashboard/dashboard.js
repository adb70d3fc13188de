// The part of the dashboard that needs no server: theme, keyboard shortcuts, dialogs, toasts, clipboard, chart shapes.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const currentTheme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  // CodeMirror has its own themes and no accessible name. It loads after the rest, so try a few times.
  function styleEditor(theme, tries) {
    const element = document.querySelector(".nicegui-codemirror");
    if (!element) return;
    const editor = window.getElement?.(element.id.slice(1));
    if (editor?.editor) {
      editor.setTheme(theme === "dark" ? "vscodeDark" : "vscodeLight");
      editor.editor.contentDOM.setAttribute("aria-label", "SQL");
    } else if (tries) setTimeout(() => styleEditor(theme, tries - 1), 250);
  }

  function applyTheme() {
    const theme = currentTheme();
    window.Quasar?.Dark.set(theme === "dark");
    document.querySelectorAll("[data-testid=theme]").forEach((button) => {
      const other = theme === "dark" ? "light" : "dark";
      button.setAttribute("aria-label", `Use the ${other} theme`);
      button.title = `Use the ${other} theme`;
    });
    styleEditor(theme, 20);
    document.getElementById("popup")?.setAttribute("role", "alert");
  }

  function toggleTheme() {
    root.dataset.theme = currentTheme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("transom-theme", root.dataset.theme);
    } catch {}
    applyTheme();
  }
  dark.addEventListener("change", applyTheme);

  function toast(text, kind) {
    const list = document.getElementById("toasts");
    const note = document.createElement("div");
    note.className = `toast ${kind || ""}`;
    note.dataset.testid = "toast";
    note.textContent = text;
    if (!kind && list.lastChild?.className === note.className) list.lastChild.remove(); // a newer success replaces an older one
    list.append(note);
    setTimeout(() => note.remove(), kind === "bad" ? 12000 : 5000);
    while (list.children.length > 4) list.firstChild.remove();
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    toast("Copied");
  }

  const sections = { a: "/alerts", o: "/", q: "/queries", c: "/compare", s: "/sharing", n: "/new", l: "/late", t: "/streams", b: "/batches", h: "/help" };
  let goPressedAt = 0; // when `g` was pressed: the next key names a section
  const isTyping = (target) => target.closest?.("input:not([type=range]):not([type=checkbox]),textarea,select,.cm-editor");
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const key = event.key;
    if (Date.now() - goPressedAt < 1500 && sections[key]) {
      location.assign(sections[key]);
    } else if (key === "g") {
      goPressedAt = Date.now();
      return;
    } else if (key === "/") {
      const search = document.querySelector("[data-search]");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select?.();
    } else if (key === "r") {
      document.querySelector("[data-testid=refresh]:not(:disabled)")?.click();
    } else if (key === "?") {
      document.getElementById("keys")?.showModal();
    }
    goPressedAt = 0;
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-do]");
    if (!button) return;
    const what = button.dataset.do;
    if (what === "theme") toggleTheme();
    if (what === "menu") {
      const isOpen = document.querySelector(".side").classList.toggle("open");
      button.setAttribute("aria-expanded", String(isOpen));
    }
    if (what === "keys") document.getElementById("keys").showModal();
    if (what === "copy") copy(button.dataset.text);
    if (what === "open") document.getElementById(button.dataset.what).showModal();
    if (what === "close") button.closest("dialog").close();
  });
  document.addEventListener("visibilitychange", () => window.emitEvent?.("visible", !document.hidden));
  window.addEventListener("load", () => setTimeout(applyTheme, 300));
  window.addEventListener("load", () => setTimeout(() => document.querySelectorAll("[data-zone]").forEach(fillZones), 400));

  // --- time zone ---

  // The server formats times, so a choice is stored in a cookie and the view is loaded again.
  function fillZones(select) {
    if (select.options.length > 1) return;
    const chosen = select.value;
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const known = select.dataset.zone.split(" ");
    const names = new Set(["UTC", ...(known.includes(own) ? [own] : []), ...known]);
    for (const name of names) {
      if (name === chosen) continue;
      const text = name === own ? `${name} (this browser)` : name;
      select.append(new Option(text, name));
    }
  }
  document.addEventListener("focusin", (event) => {
    if (event.target.matches?.("[data-zone]")) fillZones(event.target);
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches?.("[data-zone]")) return;
    const name = encodeURIComponent(event.target.value);
    document.cookie = `transom_zone=${name}; path=/; max-age=31536000; samesite=lax`;
    location.reload();
  });

  // Labels of a time axis whose values are shifted by `offset` milliseconds, so that ticks are at local hours.
  function timeLabel(zone, offset) {
    const options = { timeZone: zone, hourCycle: "h23", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" };
    const format = new Intl.DateTimeFormat("en", options);
    return (value) => {
      const parts = Object.fromEntries(format.formatToParts(value - offset).map(({ type, value }) => [type, value]));
      const clock = parts.second === "00" ? `${parts.hour}:${parts.minute}` : `${parts.hour}:${parts.minute}:${parts.second}`;
      return clock === "00:00" ? `${parts.day} ${parts.month}` : clock;
    };
  }

  // --- chart shapes ---

  // Draws [x, low, high] as a light bar with a cap at each end.
  function interval(params, api) {
    const stroke = api.visual("color");
    const half = 5;
    const [x, low] = api.coord([api.value(0), api.value(1)]);
    const high = api.coord([api.value(0), api.value(2)])[1];
    const cap = (y) => ({
      type: "line",
      shape: { x1: x - half, y1: y, x2: x + half, y2: y },
      style: { stroke, lineWidth: 1.5 },
    });
    const shape = { x: x - half, y: high, width: 2 * half, height: low - high };
    const band = { type: "rect", shape, style: { fill: stroke, opacity: 0.16 } };
    return { type: "group", children: [band, cap(low), cap(high)] };
  }

  // Draws [x, early, final] as a dashed line from the early value to the final one.
  function earlyToFinal(params, api) {
    const [x, y1] = api.coord([api.value(0), api.value(1)]);
    const y2 = api.coord([api.value(0), api.value(2)])[1];
    const style = { stroke: api.visual("color"), lineWidth: 1, lineDash: [2, 2], opacity: 0.7 };
    return { type: "line", shape: { x1: x, y1, x2: x, y2 }, style };
  }

  function tooltip(series) {
    const points = series.map((each) => each.data).filter((data) => data && data.tip);
    return points.length ? `<b>${points[0].head}</b>${points.map((data) => data.tip).join("")}` : "";
  }

  const compact = Intl.NumberFormat("en", { notation: "compact" });
  const axisLabel = (value) => (Math.abs(value) >= 1e4 ? compact.format(value) : value.toLocaleString("en"));

  window.transom = { toast, interval, earlyToFinal, tooltip, axisLabel, timeLabel };
})();
