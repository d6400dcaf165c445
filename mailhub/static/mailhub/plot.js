// The throughput plot: one line a vendor, its limit dashed in the same colour, and the same numbers as a table.
"use strict";

const panel = document.querySelector("[data-throughput]");
const colours = ["#2f9e78", "#3a74c9", "#d99312", "#a05ad0", "#d63a35", "#4b9aa8", "#8a8f2a", "#c2588f"];
const ROWS = 10;
let plot = null;
let shape = "";

const ink = () => getComputedStyle(document.body).getPropertyValue("--body-quiet-color").trim() || "#666";
const grid = () => getComputedStyle(document.body).getPropertyValue("--hairline-color").trim() || "#ddd";

function series(told) {
  const lines = told.vendors.map((one, n) => ({ label: one.name, stroke: colours[n % colours.length], width: 1.5, points: { show: false } }));
  const limits = told.vendors.map((one, n) => ({
    label: `${one.name} limit`, class: "limit", stroke: colours[n % colours.length], width: 1, points: { show: false }, dash: [6, 4], show: one.limit !== null,
  }));
  return [{}, ...lines, ...limits];
}

function data(told) {
  const limits = told.vendors.map((one) => told.times.map(() => one.limit));
  return [told.times, ...told.vendors.map((one) => one.values), ...limits];
}

function draw(told) {
  const place = panel.querySelector(".canvas");
  panel.querySelector(".empty").hidden = told.vendors.length > 0;
  const wanted = JSON.stringify([told.vendors.map((one) => [one.name, one.limit === null]), ink(), place.clientWidth]);
  if (wanted === shape) return plot && plot.setData(data(told));
  shape = wanted;
  if (plot) plot.destroy();
  plot = null;
  if (!told.vendors.length) return;
  const axis = () => ({ stroke: ink(), grid: { stroke: grid(), width: 1 }, ticks: { stroke: grid(), width: 1 } });
  const time = { ...axis(), values: (_, at) => at.map((t) => new Date(t * 1000).toTimeString().slice(0, 5)) };
  const scales = { y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] } };
  plot = new uPlot({ width: place.clientWidth, height: 240, series: series(told), axes: [time, axis()], scales }, data(told), place);
}

function tabulate(told) {
  const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const row = (tag, texts) => { const made = document.createElement("tr"); made.append(...texts.map((text) => cell(tag, text))); return made; };
  const table = document.createElement("table");
  table.append(row("th", ["Minute", ...told.vendors.map((one) => one.name)]));
  for (let at = told.times.length - 1; at >= Math.max(0, told.times.length - ROWS); at--) {
    const minute = new Date(told.times[at] * 1000).toTimeString().slice(0, 5);
    table.append(row("td", [minute, ...told.vendors.map((one) => one.values[at])]));
  }
  panel.querySelector("details .results").replaceChildren(table);
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(`${panel.dataset.throughput}?minutes=${panel.querySelector("select").value}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) return;
    const told = await answer.json();
    draw(told);
    tabulate(told);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // the server is away: the layer says so
  }
}

if (panel) {
  panel.querySelector("select").addEventListener("change", refresh);
  window.addEventListener("resize", refresh);
  setInterval(refresh, 5000);
  refresh();
}
