// What the operators' pages need beyond htmx: quiet polling, filters that need no button, keys.
"use strict";

const CHOSEN = ".pick:checked"; // a new answer would untick it
const POLLS = '[hx-trigger*="every"]';

// Where the row of pages scrolls sideways, it begins at the page that is open.
document.querySelector(".owners header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// While the server does not answer, a layer over the page says so. Polling goes on below it; but whoever is logged out
// has to log in elsewhere, so then nothing is asked until they come back to this page, and one thing when they do.
const clock = document.querySelector("#as-of time");
let shown = clock ? clock.textContent : new Date().toLocaleTimeString("en-GB");
let layer = null;
let back = false;
let leaving = 0; // until then the page loads itself again; another answer that says so would begin that anew, again and again

// What this script says, in the language of the page (mailhub/languages.py).
const texts = JSON.parse(document.getElementById("texts")?.textContent || "{}");
const say = (text, fields = {}) => (texts[text] || text).replace(/{(\w+)}/g, (_, name) => fields[name]);

// The browser's time zone, for the pages of campaign owners (mailhub/visitor_zones.py).
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
if (/^[\w+/-]+$/.test(zone) && !document.cookie.includes(`mailhub_zone=${zone};`)) {
  document.cookie = `mailhub_zone=${zone}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
}

const made = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });

function explanation(status, login) {
  if (status === 401) {
    const next = `${login || "/admin/login/"}?next=${encodeURIComponent(location.pathname + location.search)}`;
    const link = made("a", say("Log in again"), { href: next, target: "_blank", className: "button" });
    return [say("You are logged out"), say("Log in again in a new tab; this page then goes on by itself."), link];
  }
  if (status === 403) return [say("You may not see this any more"), say("Ask whoever gives permissions, and load the page again.")];
  const what = status ? say("The server cannot answer") : say("The server does not answer");
  const why = status ? [say("It says {status}: its database or its Redis may be away.", { status })] : [];
  const then = say("It is asked again every few seconds, and this page then goes on by itself.");
  return [what, [...why, then, say("Sending does not depend on this page.")].join(" ")];
}

function freeze(status, login) {
  if (layer && layer.dataset.status === String(status)) return;
  const [title, todo, link] = explanation(status, login);
  const since = made("p", say("This page shows the state of {time}.", { time: shown }));
  const box = made("div", "", { className: "box" });
  box.append(made("h2", title), since, made("p", todo), ...(link ? [link] : []));
  const before = layer ? layer.before : document.activeElement;
  if (layer) layer.remove();
  layer = made("div", "", { id: "cut-off" });
  layer.setAttribute("role", "alert");
  layer.dataset.status = status;
  layer.before = before;
  layer.since = performance.now();
  layer.append(box);
  document.body.append(layer);
  document.getElementById("container").inert = true;
  back = false;
  if (link) link.focus();
}

// An answer to what was asked before the layer came says nothing about what is now.
function thaw(asOf, asked) {
  if (layer && asked < layer.since) return;
  if (asOf) shown = asOf;
  if (asOf && clock) clock.textContent = asOf;
  if (!layer) return;
  document.getElementById("container").inert = false;
  const { before } = layer;
  layer.remove();
  layer = null;
  if (before && before.isConnected) before.focus();
}

// What has changed is patched in place, so that scroll, selection and focus stay; an open fold stays open.
if (window.Idiomorph) {
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) => !(old.nodeType === 1 && old.hasAttribute("data-keep"));
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.localName === "details");
}

// The longer an answer takes, the longer the rest before the next question (the formula of GOV.UK Notify).
const rest = (ms) => Math.max(Math.floor(250 * Math.sqrt(ms)) - 1000, 1000);
const began = new WeakMap(); // request -> when
const until = new WeakMap(); // element -> when it may ask again
const tags = new WeakMap(); // element -> the ETag of what it shows

document.addEventListener("htmx:beforeRequest", (event) => {
  const polled = event.target;
  if (!polled.matches(POLLS)) return;
  const fold = polled.closest("details");
  const closed = fold && !fold.open;
  const busy = polled.querySelector(CHOSEN) || performance.now() < (until.get(polled) || 0);
  const loggedOut = layer && layer.dataset.status === "401";
  if (document.hidden || performance.now() < leaving || closed || (loggedOut && !back) || (busy && !layer)) event.preventDefault();
  else back = false;
});
window.addEventListener("focus", () => { back = true; });
document.addEventListener("visibilitychange", () => { back = !document.hidden; });
document.addEventListener("htmx:configRequest", ({ detail: { elt, headers } }) => {
  if (tags.has(elt)) headers["If-None-Match"] = tags.get(elt);
});
document.addEventListener("htmx:beforeSend", ({ detail: { xhr } }) => began.set(xhr, performance.now()));
document.addEventListener("htmx:afterRequest", ({ detail: { elt, xhr } }) => {
  const now = performance.now();
  until.set(elt, xhr.status && xhr.status < 400 ? now + rest(now - began.get(xhr)) : 0);
});

// Nothing has changed; or something was chosen while the answer was on its way.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.xhr.status === 304 || detail.target.querySelector(CHOSEN)) detail.shouldSwap = false;
});
document.addEventListener("htmx:afterSwap", ({ detail: { elt, xhr } }) => {
  const tag = xhr.getResponseHeader("ETag");
  if (tag) tags.set(elt, tag);
});

// Nothing asks again for an upload, which says itself that it was cut off (wizard.js).
const saysItself = ({ target }, status) => target.matches("[data-upload]") && (status === 0 || status >= 500);
for (const name of ["sendError", "timeout"]) document.addEventListener(`htmx:${name}`, (event) => { if (!saysItself(event, 0)) freeze(0); });
document.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  if (!saysItself(event, xhr.status)) freeze(xhr.status, xhr.getResponseHeader("X-Login"));
});
document.addEventListener("htmx:beforeOnLoad", ({ detail: { xhr } }) => {
  if (xhr.getResponseHeader("HX-Refresh")) leaving = performance.now() + htmx.config.timeout;
  if (xhr.status < 400) thaw(xhr.getResponseHeader("X-As-Of"), began.get(xhr));
});

// Selection of rows. Django's script knows only the rows of the first answer.
document.addEventListener("change", (event) => {
  const table = event.target.closest("table.jobs");
  if (!table || window.Actions) return; // Django's is there where there are more pages
  const boxes = [...table.querySelectorAll(".pick, .action-select")];
  if (event.target.matches("#pick-all, #action-toggle")) for (const box of boxes) box.checked = event.target.checked;
  for (const box of boxes) box.closest("tr").classList.toggle("selected", box.checked);
  const note = document.getElementById("held");
  const chosen = boxes.filter((box) => box.checked).map((box) => box.closest("tr"));
  if (note) note.textContent = chosen.length ? note.dataset.text.replace("{chosen}", chosen.length).replace("{all}", boxes.length) : "";
  offer(chosen);
});

// Verbs that none of the chosen rows is in a state for are not offered.
function offer(rows) {
  const known = rows.filter((row) => row.dataset.verbs !== undefined);
  const legal = new Set(known.flatMap((row) => row.dataset.verbs.split(" ")));
  const menu = document.querySelector('select[name="action"]');
  for (const verb of menu ? menu.options : []) verb.disabled = known.length > 0 && verb.value !== "" && !legal.has(verb.value);
}

// Keys: / searches, j and k go from row to row, x chooses the row, ? tells them.
const links = () => [...document.querySelectorAll("table.jobs tbody tr > th a, #result_list tbody tr > th a")];
let current = ""; // the row's link, also where the focus has gone elsewhere meanwhile
const rowNow = () => document.activeElement.closest("tr") || document.getElementById(current)?.closest("tr");
function go(step) {
  const all = links();
  const row = rowNow();
  const at = row ? all.findIndex((link) => link.closest("tr") === row) : -1;
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  if (!next) return;
  next.focus();
  current = next.id;
}
const KEYS = {
  "/": () => { const box = document.querySelector('input[type="search"][name="q"], #searchbar'); if (box) { box.focus(); box.select(); } },
  "j": () => go(1),
  "k": () => go(-1),
  "x": () => { const row = rowNow(); const box = row && row.querySelector(".pick, .action-select"); if (box) box.click(); },
  "?": () => { const told = document.getElementById("keys"); if (told) told.showModal(); },
};
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open], [contenteditable]");
  if (typing || layer || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  const range = form.querySelector(".range");
  if (range) range.hidden = form.elements.date.value !== "range"; // chosen before this script ran, or kept by the browser
  form.addEventListener("change", (event) => {
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
