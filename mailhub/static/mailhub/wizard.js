// What the wizard's pages do beyond plain forms: the bar of an upload, a question before text is lost.
"use strict";

let changed = false;

document.addEventListener("input", (event) => {
  if (event.target.closest("form[data-keep]")) changed = true;
  if (event.target.id === "id_send_at") document.getElementById("when-at").checked = true;
});

// What was typed is kept in this window until the server has it: a session that has ended, a form that belongs to an
// earlier log-in or a server that is away lose nothing.
const KEPT = "mailhub.typed";
const PLAIN = (text) => text.replaceAll("\r\n", "\n");

document.addEventListener("submit", (event) => {
  changed = false;
  const form = event.target;
  if (!form.matches("form[data-keep]")) return;
  const typed = [...new FormData(form)].filter(([name, value]) => typeof value === "string" && name !== "csrfmiddlewaretoken");
  const kept = { who: form.dataset.keep, to: form.action, seen: form.elements.seen?.value, typed };
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(kept));
  } catch { /* too much for this browser to keep */ }
});

// Of the same form, in the same state of the draft, the server has nothing of it; after any other page it is over.
document.addEventListener("DOMContentLoaded", () => {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
  sessionStorage.removeItem(KEPT);
  const form = document.querySelector("form[data-keep]");
  if (!kept || !form || kept.who !== form.dataset.keep || kept.to !== form.action) return;
  if (kept.seen !== form.elements.seen?.value || !restored(form, new Map(kept.typed))) return;
  form.querySelector("[data-kept]").hidden = false;
  changed = true;
});

function restored(form, typed) {
  if (form.elements.sponsor && form.elements.sponsor.value !== typed.get("sponsor")) return false;
  if (form.elements.key) form.elements.key.value = typed.get("key");
  let differs = false;
  for (const box of form.elements) {
    if (!box.name || ["hidden", "file", "submit"].includes(box.type)) continue;
    const value = typed.get(box.name);
    if (box.type === "checkbox" || box.type === "radio") {
      differs ||= box.checked !== (value === box.value);
      box.checked = value === box.value;
    } else if (value !== undefined && PLAIN(box.value) !== PLAIN(value)) {
      box.value = value;
      differs = true;
    }
  }
  return differs;
}

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

// The answer that comes back has a progress of its own, so the bar never goes back.
document.addEventListener("htmx:xhr:progress", (event) => {
  const shown = event.target.querySelector("[data-progress]");
  if (!shown || !event.detail.lengthComputable) return;
  shown.hidden = false;
  const bar = shown.querySelector("progress");
  bar.value = Math.max(bar.value, (100 * event.detail.loaded) / event.detail.total);
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.matches("[data-upload]")) lock(event.target, true);
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.successful && event.target.matches("[data-upload]")) lock(event.target, false);
});

function lock(form, locked) {
  const shown = form.querySelector("[data-progress]");
  shown.hidden = true;
  shown.querySelector("progress").value = 0;
  form.querySelector("[data-cut-off]").hidden = locked;
  for (const one of form.querySelectorAll("button[type='submit'], input[type='file']")) one.disabled = locked;
}

// Heading and button say to how many the first ones are sent, as soon as their number is typed.
document.addEventListener("input", (event) => {
  if (event.target.id !== "id_first") return;
  const size = document.querySelector("[data-size]")?.dataset.size;
  const first = Number(event.target.value);
  const shown = first > 0 && first < Number(size) && first.toLocaleString(document.documentElement.lang);
  for (const one of document.querySelectorAll("[data-first]")) {
    one.textContent = shown ? one.dataset.first.replace("#", shown) : one.dataset.all;
  }
});
