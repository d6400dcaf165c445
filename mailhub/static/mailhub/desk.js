// What the operators' pages need beyond htmx: when not to poll, and filters that need no button.
"use strict";

// A row that is chosen, or a fold under somebody's keys: an answer would take the choice or the focus away.
const HELD = ".pick:checked, summary:focus-visible";

document.addEventListener("htmx:beforeRequest", (event) => {
  const polled = event.target;
  const fold = polled.closest("details");
  const busy = polled.querySelector(HELD) || (fold && !fold.open);
  if (document.hidden || busy) event.preventDefault();
});

// The same for an answer that was on its way.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.querySelector(HELD)) event.detail.shouldSwap = false;
});

// A poll that fails says so, instead of showing old numbers as if they were new.
const stale = (is) => document.body.classList.toggle("stale", is);
document.addEventListener("htmx:sendError", () => stale(true));
document.addEventListener("htmx:responseError", () => stale(true));
document.addEventListener("htmx:afterOnLoad", () => stale(false));

// Choosing rows. Not Django's script: that one knows only the rows that were there first.
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

// The vendor's page: what the typed limits would change, before they are saved.
const foretold = document.querySelector("[data-forecast]");
if (foretold) {
  let asked = 0;
  const foretell = async () => {
    const address = new URL(foretold.dataset.forecast, location.href);
    for (const row of document.querySelectorAll("#limits-group tr.form-row:not(.empty-form)")) {
      const typed = (name) => row.querySelector(`input[name$="-${name}"]`);
      const gone = typed("DELETE");
      if (!typed("units") || (gone && gone.checked) || !(typed("units").value || typed("seconds").value)) continue;
      address.searchParams.append("limit", `${typed("units").value}/${typed("seconds").value}`);
    }
    const mine = ++asked;
    const answer = await fetch(address);
    const told = await answer.text();
    if (answer.ok && mine === asked) foretold.innerHTML = told;
  };
  document.querySelector("form#vendor_form").addEventListener("input", (event) => {
    if (event.target.closest("#limits-group")) foretell();
  });
}
