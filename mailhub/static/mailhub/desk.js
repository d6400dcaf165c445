// What the operators' pages need beyond htmx: when not to poll, and filters that need no button.
"use strict";

document.addEventListener("htmx:beforeRequest", (event) => {
  const polled = event.target;
  const fold = polled.closest("details");
  const busy = polled.querySelector(".pick:checked") || (fold && !fold.open);
  if (document.hidden || busy) event.preventDefault();
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
