// What the operators' pages need beyond htmx: when not to poll, and filters that need no button.
"use strict";

// A selected row, or a fold that has the focus: a new answer would remove the selection or the focus.
const HELD = ".pick:checked, .pick:focus-visible, summary:focus-visible";

// While the server does not answer, a layer over the page says so. Polling goes on below it.
let seen = new Date();
let layer = null;

const utc = (at) => `${at.toISOString().slice(11, 19)} UTC`;
const made = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });

function explanation(status, login) {
  if (status === 401) {
    const next = `${login || "/admin/login/"}?next=${encodeURIComponent(location.pathname + location.search)}`;
    const link = made("a", "Log in again", { href: next, target: "_blank", className: "button" });
    return ["You are logged out", "Log in again in a new tab; this page then goes on by itself.", link];
  }
  if (status === 403) return ["You may not see this any more", "Ask whoever gives permissions, and load the page again."];
  const what = status ? "The server cannot answer" : "The server does not answer";
  const why = status ? `It says ${status}: its database or its Redis may be away. ` : "";
  return [what, `${why}It is asked again every few seconds, and this page then goes on by itself. Sending does not depend on this page.`];
}

function freeze(status, login) {
  if (layer && layer.dataset.status === String(status)) return;
  const [title, todo, link] = explanation(status, login);
  const since = made("p", `This page shows the state of ${utc(seen)}.`);
  const box = made("div", "", { className: "box" });
  box.append(made("h2", title), since, made("p", todo), ...(link ? [link] : []));
  const before = layer ? layer.before : document.activeElement;
  if (layer) layer.remove();
  layer = made("div", "", { id: "cut-off" });
  layer.setAttribute("role", "alert");
  layer.dataset.status = status;
  layer.before = before;
  layer.append(box);
  document.body.append(layer);
  document.getElementById("container").inert = true;
  if (link) link.focus();
}

function thaw() {
  seen = new Date();
  if (!layer) return;
  document.getElementById("container").inert = false;
  const { before } = layer;
  layer.remove();
  layer = null;
  if (before && before.isConnected) before.focus();
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const polled = event.target;
  const fold = polled.closest("details");
  const busy = polled.querySelector(HELD) || (fold && !fold.open);
  if (document.hidden || (busy && !layer)) event.preventDefault();
});

// The same for an answer that was in flight.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.querySelector(HELD)) event.detail.shouldSwap = false;
});

document.addEventListener("htmx:sendError", () => freeze(0));
document.addEventListener("htmx:timeout", () => freeze(0));
document.addEventListener("htmx:responseError", ({ detail: { xhr } }) => freeze(xhr.status, xhr.getResponseHeader("X-Login")));
document.addEventListener("htmx:beforeOnLoad", ({ detail: { xhr } }) => { if (xhr.status < 400) thaw(); });

// Selection of rows. Django's script knows only the rows of the first answer.
document.addEventListener("change", (event) => {
  const table = event.target.closest("table.jobs");
  if (!table) return;
  const boxes = [...table.querySelectorAll(".pick")];
  if (event.target.id === "pick-all") for (const box of boxes) box.checked = event.target.checked;
  for (const box of boxes) box.closest("tr").classList.toggle("selected", box.checked);
});

for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  form.addEventListener("change", (event) => {
    const range = form.querySelector(".range");
    if (event.target.name === "date") {
      const own = event.target.value === "range";
      range.hidden = !own;
      if (own) return range.querySelector("input").focus();
      for (const input of range.querySelectorAll("input")) input.value = "";
    }
    if (event.target.tagName === "SELECT") form.requestSubmit();
  });
  // Empty fields stay out of the address.
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
  });
}

// The vendor's page: the forecast with the typed limits, before they are saved.
const preview = document.querySelector("[data-forecast]");
if (preview) {
  let asked = 0;
  const update = async () => {
    const address = new URL(preview.dataset.forecast, location.href);
    for (const row of document.querySelectorAll("#limits-group tr.form-row:not(.empty-form)")) {
      const typed = (name) => row.querySelector(`input[name$="-${name}"]`);
      const gone = typed("DELETE");
      if (!typed("units") || (gone && gone.checked) || !(typed("units").value || typed("seconds").value)) continue;
      address.searchParams.append("limit", `${typed("units").value}/${typed("seconds").value}`);
    }
    const mine = ++asked;
    const answer = await fetch(address, { headers: { "HX-Request": "true" } });
    const html = await answer.text();
    if (answer.ok && mine === asked) preview.innerHTML = html;
  };
  document.querySelector("form#vendor_form").addEventListener("input", (event) => {
    if (event.target.closest("#limits-group")) update();
  });
}
