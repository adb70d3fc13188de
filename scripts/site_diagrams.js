// Draws the diagrams of a page with the copy of Mermaid that the site brings.
const blocks = document.querySelectorAll("pre.diagram");
if (blocks.length) {
  const { mermaid } = await import("./mermaid/index.js");
  const dark = document.body.dataset.mdColorScheme === "slate";
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "neutral" });
  for (const [number, block] of blocks.entries()) {
    const { svg } = await mermaid.render(`diagram-${number}`, block.textContent);
    const figure = document.createElement("div");
    figure.innerHTML = svg;
    block.replaceWith(figure);
  }
}
