// Two charts over time, one below the other: rates as lines, round trips as dots.

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const LEFT = 72;
const SECONDS = 10;

function mark(name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// The end of an axis from zero: 1, 2 or 5 times a power of ten.
function axisEnd(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((end) => end >= most);
}

// Draws one panel. `series` has a way, a form and points of seconds and values each.
function panel(width, title, series, level, format) {
  const values = series.flatMap((one) => one.points.map(([, value]) => value));
  const most = Math.max(...values, level ?? 0, 0);
  const end = most ? axisEnd(most) : 1;
  const svg = mark("svg", { viewBox: `0 0 ${width} ${HEIGHT}` });
  const x = (seconds) => LEFT + ((width - LEFT - 8) * Math.min(seconds, SECONDS)) / SECONDS;
  const y = (value) => HEIGHT - 18 - ((HEIGHT - 44) * value) / end;
  svg.append(mark("text", { x: 0, y: 12 }, title));
  for (const share of [0, 0.5, 1]) {
    const at = y(end * share);
    const kind = share ? "grid" : "zero";
    svg.append(mark("line", { class: kind, x1: LEFT, x2: width - 8, y1: at, y2: at }));
    const label = share ? format(end * share) : "0";
    if (most) svg.append(mark("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end" }, label));
  }
  for (const seconds of [0, 5, 10]) {
    const anchor = { 0: "start", 5: "middle", 10: "end" }[seconds];
    svg.append(mark("text", { x: x(seconds), y: HEIGHT - 3, "text-anchor": anchor }, `${seconds} s`));
  }
  if (level !== undefined) svg.append(mark("line", { class: "level", x1: LEFT, x2: width - 8, y1: y(level), y2: y(level) }));
  let legend = width - 8;
  for (const { way, name, form, points } of [...series].reverse()) {
    const places = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
    // A line of no length is a dot with its round ends.
    const path = form === "line" ? `M${places.join("L")}` : places.map((place) => `M${place}h0`).join("");
    if (places.length) svg.append(mark("path", { class: `${form} ${way}`, d: path }));
    svg.append(mark("text", { class: way, x: legend, y: 12, "text-anchor": "end" }, name));
    legend -= 84;
  }
  return svg;
}

// Shows both panels in `figure`, as wide as it is.
export function drawCharts(figure, rates, delays, level, names) {
  const width = Math.max(figure.clientWidth, 280);
  figure.replaceChildren(
    panel(width, names.rate, rates, undefined, names.formatRate),
    panel(width, names.delay, delays, level, names.formatTime),
  );
}
