// What the wizard's pages do beyond plain forms: the bar of an upload, fields at hand, a question before text is lost.
"use strict";

let typing = null; // the box that had the focus last
let changed = false;

document.addEventListener("focusin", (event) => {
  if (event.target.matches("form[data-keep] textarea, form[data-keep] input[name='subject']")) typing = event.target;
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-insert]");
  if (!button) return;
  const box = typing || document.getElementById("id_text");
  box.setRangeText(button.dataset.insert, box.selectionStart, box.selectionEnd, "end");
  box.focus();
  changed = true;
});

document.addEventListener("input", (event) => {
  if (event.target.closest("form[data-keep]")) changed = true;
  if (event.target.id === "id_send_at") document.getElementById("when-at").checked = true;
});

document.addEventListener("submit", () => { changed = false; });
window.addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });

// A list is on its way as soon as it is chosen; a file that is too large is said to be so before.
document.addEventListener("change", (event) => {
  const { most } = event.target.dataset;
  if (!most) return;
  const form = event.target.form;
  const [file] = event.target.files;
  const large = Boolean(file) && file.size > Number(most);
  form.querySelector("[data-too-large]").hidden = !large;
  form.querySelector("button[type='submit']").disabled = large;
  if (file && !large && form.matches("[data-upload]")) form.requestSubmit();
});

document.addEventListener("htmx:xhr:progress", (event) => {
  const shown = event.target.querySelector("[data-progress]");
  if (!shown || !event.detail.lengthComputable) return;
  shown.hidden = false;
  shown.querySelector("progress").value = (100 * event.detail.loaded) / event.detail.total;
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.matches("[data-upload]")) lock(event.target, true);
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.successful && event.target.matches("[data-upload]")) lock(event.target, false);
});

function lock(form, locked) {
  for (const one of form.querySelectorAll("button[type='submit'], input[type='file']")) one.disabled = locked;
}
