const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
async function draw() {
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim();
  const [text, soft, line] = [colour("--text"), colour("--soft"), colour("--line")];
  const config = {
    background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelColor: text, titleColor: soft, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" },
    legend: { labelColor: text, titleColor: soft, labelFontSize: 12 },
    rule: { color: soft },
  };
  for (const { id, specification } of charts) {
    specification.config = config;
    const place = document.getElementById(id);
    await vegaEmbed(place, specification, { actions: false, renderer: "svg" });
    place.ariaHidden = true;
  }
  document.documentElement.dataset.drawn = "true";
}
dark.addEventListener("change", draw);
draw();
