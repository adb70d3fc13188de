// Updates HTML from the server in place, so that focus, selection and open <details> elements survive.
function syncAttributes(old, now) {
  for (const { name, value } of [...now.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) {
      old.setAttribute(name, value);
      if (name === "value") old.value = value;
    }
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
  }
}

const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute("data-key") : null);

function isSameNode(old, now) {
  return old.nodeType === now.nodeType && old.nodeName === now.nodeName && keyOf(old) === keyOf(now);
}

// Changes the children of `parent` into those of `wanted`; nodes with the same data-key are kept.
function morph(parent, wanted) {
  let at = parent.firstChild;
  for (const now of [...wanted.childNodes]) {
    let old = at;
    if (!old || !isSameNode(old, now)) {
      const key = keyOf(now);
      old = key === null ? null : [...parent.childNodes].find((each) => isSameNode(each, now));
      if (!old && at && key === null && keyOf(at) === null && at.nodeType === now.nodeType) {
        const next = at.nextSibling;
        parent.replaceChild(now, at);
        at = next;
        continue;
      }
      if (!old) {
        parent.insertBefore(now, at);
        continue;
      }
      parent.insertBefore(old, at);
    }
    if (old === at) at = at.nextSibling;
    if (old.nodeType === 1) {
      syncAttributes(old, now);
      morph(old, now);
    } else if (old.data !== now.data) {
      old.data = now.data;
    }
  }
  while (at) {
    const next = at.nextSibling;
    parent.removeChild(at);
    at = next;
  }
}

export default {
  template: `<component :is="tag"></component>`,
  props: { html: String, tag: { type: String, default: "div" } },
  mounted() {
    this.$el.innerHTML = this.html;
  },
  watch: {
    html(now) {
      const wanted = document.createElement(this.tag);
      wanted.innerHTML = now;
      morph(this.$el, wanted);
    },
  },
};
