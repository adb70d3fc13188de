// The editor's part that runs in the browser: completion in CodeMirror, and the history of drafts.
(() => {
  const DRAFTS = "transom-drafts";
  const MOST_DRAFTS = 20;
  const SAVE_DELAY = 1200; // milliseconds after the last change

  // The API counts characters as Python does, CodeMirror counts UTF-16 units.
  const toCharacters = (text) => [...text].length;
  const toUnits = (text, characters) => [...text].slice(0, characters).join("").length;

  // --- completion ---

  // Without a word, suggestions appear by themselves only where a name must follow.
  const NAME_FOLLOWS = /[.[]$|\b(?:from|join|wattr|by)\s$/i;

  async function suggestions(context) {
    const text = context.state.doc.toString();
    const before = text.slice(0, context.pos);
    if (!context.explicit && !/[\w`]$/.test(before) && !NAME_FOLLOWS.test(before)) return null;
    const body = JSON.stringify({ sql: text, cursor: toCharacters(before) });
    let found;
    try {
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch("/api/complete", { method: "POST", headers, body });
      if (!answer.ok || context.aborted) return null;
      found = await answer.json();
    } catch {
      return null; // the banner says that the server can't be reached
    }
    const from = toUnits(text, found.start);
    const options = found.candidates.map(asOption);
    const typed = text.slice(from, context.pos);
    const isWritten = options.length === 1 && options[0].insert === typed;
    return options.length && !(isWritten && !context.explicit) ? { from, to: context.pos, options, filter: false } : null;
  }

  function asOption({ label, kind, detail, info, insert, cursor }) {
    const apply = (view, option, from, to) => {
      const anchor = from + (cursor === null ? insert.length : cursor);
      view.dispatch({ changes: { from, to, insert }, selection: { anchor }, userEvent: "input.complete" });
    };
    return { label, type: kind, detail: detail === label ? "" : detail, info: info || undefined, apply, insert };
  }

  // CodeMirror's own SQL support would also suggest every keyword of other systems; only its colours are used.
  function attach(tries) {
    const element = document.querySelector(".nicegui-codemirror");
    if (!element) return;
    const editor = window.getElement?.(element.id.slice(1));
    if (!editor?.editor) {
      if (tries) setTimeout(() => attach(tries - 1), 100);
      return;
    }
    const view = editor.editor;
    const { languageData } = view.state.constructor;
    editor.findLanguage("SQL").load().then((support) => {
      const source = languageData.of(() => [{ autocomplete: suggestions }]);
      view.dispatch({ effects: editor.languageConfig.reconfigure([support.language, source]) });
      element.dataset.ready = "yes";
    });
    followDrafts(view);
  }

  // --- drafts ---

  function readDrafts() {
    try {
      const drafts = JSON.parse(localStorage.getItem(DRAFTS) || "[]");
      return Array.isArray(drafts) ? drafts.filter((draft) => typeof draft?.sql === "string") : [];
    } catch {
      return [];
    }
  }

  function writeDrafts(drafts) {
    try {
      localStorage.setItem(DRAFTS, JSON.stringify(drafts.slice(0, MOST_DRAFTS)));
    } catch {}
  }

  // Each visit of the editor writes one draft, which follows the text; what was there before stays.
  function followDrafts(view) {
    const first = view.state.doc.toString();
    const visit = Date.now();
    let saved = first;
    let timer = 0;
    const save = () => {
      clearTimeout(timer);
      const sql = view.state.doc.toString();
      if (sql === saved || !sql.trim()) return;
      saved = sql;
      const others = readDrafts().filter((draft) => draft.visit !== visit && draft.sql !== sql);
      writeDrafts([{ sql, visit, at: Date.now() }, ...others]);
      showDrafts(view);
    };
    const timed = () => {
      if (!view.dom.isConnected) return clearInterval(watching);
      if (view.state.doc.toString() !== saved && !timer) timer = setTimeout(() => ((timer = 0), save()), SAVE_DELAY);
    };
    const watching = setInterval(timed, 400);
    window.addEventListener("pagehide", save);
    showDrafts(view);
  }

  function age(at) {
    const minutes = Math.round((Date.now() - at) / 60000);
    if (minutes < 1) return "now";
    if (minutes < 60) return `${minutes} min ago`;
    return minutes < 2880 ? `${Math.round(minutes / 60)} h ago` : `${Math.round(minutes / 1440)} d ago`;
  }

  function showDrafts(view) {
    const list = document.querySelector("[data-drafts]");
    if (!list) return;
    const drafts = readDrafts();
    list.closest("[data-has]").dataset.has = drafts.length ? "some" : "none";
    list.replaceChildren(
      ...drafts.map((draft) => {
        const button = document.createElement("button");
        const line = draft.sql.replace(/\s+/g, " ").trim();
        const words = Object.assign(document.createElement("span"), { className: "mono clip", textContent: line });
        const when = Object.assign(document.createElement("span"), { className: "small muted", textContent: age(draft.at) });
        button.type = "button";
        button.title = draft.sql;
        button.dataset.testid = "draft";
        button.append(words, when);
        button.addEventListener("click", () => {
          view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: draft.sql } });
          view.focus();
        });
        return button;
      }),
    );
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-do=forget-drafts]")) {
      writeDrafts([]);
      showDrafts();
    }
  });
  window.addEventListener("load", () => setTimeout(() => attach(100), 50));
})();
