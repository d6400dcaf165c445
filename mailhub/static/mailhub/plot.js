// The throughput plots: a small one a vendor with its limit as a label, and the same numbers as a table.
"use strict";

const panel = document.querySelector("[data-throughput]");
const colours = ["#2f9e78", "#3a74c9", "#d99312", "#a05ad0", "#d63a35", "#4b9aa8", "#8a8f2a", "#c2588f"];
const ROWS = 10;
const WHOLE = Array.from({ length: 12 }, (_, n) => [1, 2, 5].map((one) => one * 10 ** n)).flat(); // steps of the axis
const numbers = new Intl.NumberFormat(document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang);
let plots = [];
let shape = "";
// The server's zone, as everywhere on the page.
const minutes = panel && new Intl.DateTimeFormat(document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang, { hour: "2-digit", minute: "2-digit", timeZone: panel.dataset.zone });
const clockOf = (seconds) => minutes.format(new Date(seconds * 1000));

const ink = () => getComputedStyle(document.body).getPropertyValue("--body-quiet-color").trim() || "#666";
// As wide as the longest number of the axis.
function widthOf(chart, texts) {
  if (!texts) return 50;
  chart.ctx.font = chart.axes[1].font[0];
  return Math.max(50, 20 + Math.ceil(Math.max(...texts.map((text) => chart.ctx.measureText(text || "").width)) / devicePixelRatio));
}

const grid = () => getComputedStyle(document.body).getPropertyValue("--hairline-color").trim() || "#ddd";

// Small multiples: one chart a vendor on the scale of its own numbers, with its limit as a label. A limit far above them
// would flatten the line, so it is drawn only where it is near.
function drawOne(place, shown, one, n) {
  const near = isNear(one);
  const stroke = colours[n % colours.length];
  const axis = () => ({ stroke: ink(), grid: { stroke: grid(), width: 1 }, ticks: { stroke: grid(), width: 1 } });
  const time = { ...axis(), space: 70, values: (_, at) => at.map(clockOf) };
  const counts = { ...axis(), incrs: WHOLE, space: 24, values: (_, at) => at.map((count) => numbers.format(count)), size: widthOf };
  const series = [{ label: say("Time") }, { label: one.name, stroke, width: 1.5, fill: `${stroke}22`, points: { show: false } }];
  if (near) series.push({ label: say("{vendor} limit", { vendor: one.name }), stroke, width: 1, points: { show: false }, dash: [6, 4] });
  const scales = { y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] } };
  const options = { width: place.clientWidth, height: 120, series, axes: [time, counts], scales, legend: { show: false } };
  return new uPlot(options, dataOf(shown, one, near), place);
}

const dataOf = (shown, one, near) => [shown.times, one.values, ...(near ? [shown.times.map(() => one.limit)] : [])];
const isNear = (one) => one.limit !== null && one.limit <= 2 * Math.max(1, ...one.values);

// The greatest minute and the limit, as the heading of a vendor's chart says them.
function labelOf(one) {
  const most = say("most {count} a minute", { count: numbers.format(Math.max(...one.values)) });
  const limit = one.limit === null ? say("no limit") : say("limit {count} a minute", { count: numbers.format(Math.floor(one.limit)) });
  return `${most}, ${limit}`;
}

function draw(shown) {
  const place = panel.querySelector(".canvas");
  panel.querySelector(".empty").hidden = shown.vendors.length > 0;
  const wanted = JSON.stringify([shown.vendors.map((one) => [one.name, isNear(one)]), ink(), place.clientWidth]);
  if (wanted !== shape) {
    plots.forEach((one) => one.destroy());
    place.replaceChildren();
    plots = shown.vendors.map((one, n) => {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      caption.append(Object.assign(document.createElement("b"), { textContent: one.name }), document.createElement("small"));
      figure.append(caption);
      place.append(figure);
      return drawOne(figure, shown, one, n);
    });
    shape = wanted;
  } else {
    shown.vendors.forEach((one, n) => plots[n].setData(dataOf(shown, one, isNear(one))));
  }
  shown.vendors.forEach((one, n) => { place.children[n].querySelector("small").textContent = labelOf(one); });
}

function tabulate(shown) {
  const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const row = (tag, texts) => { const made = document.createElement("tr"); made.append(...texts.map((text) => cell(tag, text))); return made; };
  const table = document.createElement("table");
  table.append(row("th", [say("Minute"), ...shown.vendors.map((one) => one.name)]));
  for (let at = shown.times.length - 1; at >= Math.max(0, shown.times.length - ROWS); at--) {
    table.append(row("td", [clockOf(shown.times[at]), ...shown.vendors.map((one) => one.values[at])]));
  }
  panel.querySelector("details .results").replaceChildren(table);
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(`${panel.dataset.throughput}?minutes=${panel.querySelector("select").value}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) return;
    const shown = await answer.json();
    draw(shown);
    tabulate(shown);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // the server is away: the layer says so
  }
}

if (panel) {
  panel.querySelector("select").addEventListener("change", refresh);
  window.addEventListener("resize", refresh);
  // The next question comes after the answer to the last one, and later where the server is slow.
  const follow = async () => {
    const began = performance.now();
    try {
      await refresh();
    } finally {
      setTimeout(follow, Math.max(5000, rest(performance.now() - began)));
    }
  };
  follow();
}
