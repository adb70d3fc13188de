// What the page does by itself, without the server: the theme, keys, dialogs, toasts, copying.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  // The editor has themes of its own, and no name. It comes a while after the page.
  function dressEditor(theme, tries) {
    const place = document.querySelector(".nicegui-codemirror");
    if (!place) return;
    const editor = window.getElement?.(place.id.slice(1));
    if (editor?.editor) {
      editor.setTheme(theme === "dark" ? "vscodeDark" : "vscodeLight");
      editor.editor.contentDOM.setAttribute("aria-label", "SQL");
    } else if (tries) setTimeout(() => dressEditor(theme, tries - 1), 250);
  }

  function announce() {
    const theme = chosen();
    window.Quasar?.Dark.set(theme === "dark");
    document.querySelectorAll("[data-testid=theme]").forEach((button) => {
      const other = theme === "dark" ? "light" : "dark";
      button.setAttribute("aria-label", `Use the ${other} theme`);
      button.title = `Use the ${other} theme`;
    });
    dressEditor(theme, 20);
    document.getElementById("popup")?.setAttribute("role", "alert");
  }

  function toggleTheme() {
    root.dataset.theme = chosen() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("transom-theme", root.dataset.theme);
    } catch {}
    announce();
  }
  dark.addEventListener("change", announce);

  function toast(text, kind) {
    const box = document.getElementById("toasts");
    const note = document.createElement("div");
    note.className = `toast ${kind || ""}`;
    note.dataset.testid = "toast";
    note.textContent = text;
    if (!kind && box.lastChild?.className === note.className) box.lastChild.remove(); // good news, but newer
    box.append(note);
    setTimeout(() => note.remove(), kind === "bad" ? 12000 : 5000);
    while (box.children.length > 4) box.firstChild.remove();
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

  const places = { o: "/", q: "/queries", s: "/sharing", n: "/new", l: "/late" };
  let going = 0;
  const isTyping = (target) => target.closest?.("input:not([type=range]):not([type=checkbox]),textarea,select,.cm-editor");
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const key = event.key;
    if (Date.now() - going < 1500 && places[key]) {
      location.assign(places[key]);
    } else if (key === "g") {
      going = Date.now();
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
    going = 0;
  });

  document.addEventListener("click", (event) => {
    const act = event.target.closest?.("[data-do]");
    if (!act) return;
    const what = act.dataset.do;
    if (what === "theme") toggleTheme();
    if (what === "keys") document.getElementById("keys").showModal();
    if (what === "copy") copy(act.dataset.text);
    if (what === "open") document.getElementById(act.dataset.what).showModal();
    if (what === "close") act.closest("dialog").close();
  });
  document.addEventListener("visibilitychange", () => window.emitEvent?.("seen", !document.hidden));
  window.addEventListener("load", () => setTimeout(announce, 300));

  // --- parts of charts ---

  // From [x, low, high]: a soft bar with a cap at each end.
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

  // From [x, early, final]: what was told, led to what came.
  function became(params, api) {
    const [x, y1] = api.coord([api.value(0), api.value(1)]);
    const y2 = api.coord([api.value(0), api.value(2)])[1];
    const style = { stroke: api.visual("color"), lineWidth: 1, lineDash: [2, 2], opacity: 0.7 };
    return { type: "line", shape: { x1: x, y1, x2: x, y2 }, style };
  }

  function tooltip(all) {
    const told = all.map((one) => one.data).filter((data) => data && data.tip);
    return told.length ? `<b>${told[0].head}</b>${told.map((data) => data.tip).join("")}` : "";
  }

  const short = Intl.NumberFormat("en", { notation: "compact" });
  const figure = (value) => (Math.abs(value) >= 1e4 ? short.format(value) : value.toLocaleString("en"));

  window.transom = { toast, interval, became, tooltip, figure };
})();
