// The editor of a letter, and the preview that follows it. What is stored is always the text of the textarea. "Write" is
// a second view of it (Squire), offered only where reading it into the view and back loses nothing. Without this script
// the textareas are plain ones.
"use strict";

// What a template shows or decides; in the view each is a chip, which is edited as one thing.
const TOKEN = /\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}/gs;
const HELD = /\uE000(\d+)\uE001/g; // the place of a token while HTML is parsed, because a token may hold < or "
const NO_WIDTH = "\u200B"; // Squire leaves it out of what it reads back
const EMPTY_END = /(\s*<(p|div)><br><\/\2>)+$/; // Squire keeps a line to go on
const LONGEST = 200000;
// Write has no means for these; a version of them that looks the same is not good enough.
const NOT_WRITTEN = /<(!doctype|!--|html|head|body|style|script|meta|link|title|base|table|thead|tbody|tr|td|th|form|input|button|select|textarea|iframe|object|svg|center|font|pre|hr|video|audio|mj[a-z-]*|[a-z0-9]+:[a-z]+)\b|<(!--)/i;
const ACTS = /<[^<>]*\s(on[a-z]+|hx-[a-z-]+)\s*=/i;
const INLINE = /^(?:#text|A(?:BBR|CRONYM)?|B(?:R|D[IO])?|C(?:ITE|ODE)|D(?:ATA|EL|FN)|EM|FONT|HR|I(?:MG|NS)?|KBD|Q|R(?:P|T|UBY)|S(?:AMP|MALL|PAN|TR(?:IKE|ONG)|U[BP])?|TIME|U|VAR|WBR)$/;
const SAME = { STRONG: "B", EM: "I", INS: "U", STRIKE: "S" }; // Squire's names for them
// The letter's own names, strong and not b, where it uses one alone; what is written anew is named so, too.
function ownNames(text) {
  const uses = (name) => new RegExp(`<${name}\\b`, "i").test(text);
  return Object.entries(SAME).filter(([own, theirs]) => uses(own) && !uses(theirs));
}

function rename(element, name) {
  const made = element.ownerDocument.createElement(name);
  for (const { name: key, value } of element.attributes) made.setAttribute(key, value);
  made.append(...element.childNodes);
  element.replaceWith(made);
}

const READ = {
  RETURN_DOM_FRAGMENT: true, ALLOW_DATA_ATTR: false, ADD_ATTR: ["target"], FORBID_ATTR: ["id", "name", "contenteditable"],
  FORBID_TAGS: ["style", "form", "input", "button", "select", "textarea", "option", "dialog", "svg", "math"],
};
// A paste brings its words and their order, not the looks of the program it comes from.
const PASTED = {
  RETURN_DOM_FRAGMENT: true, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, ALLOWED_ATTR: ["href"],
  ALLOWED_TAGS: ["a", "b", "strong", "i", "em", "u", "br", "p", "div", "h1", "h2", "h3", "ul", "ol", "li", "blockquote"],
};
const DEBOUNCE = 400, APART = 800, PATIENCE = 15000; // milliseconds

// A document in which nothing runs and nothing is loaded; nodes of it stay there until they are cleaned.
const parsed = (html) => new DOMParser().parseFromString(html, "text/html").body;
const isInline = (node) => INLINE.test(node.nodeName) && [...node.childNodes].every(isInline);
const isStatement = (token) => !token.startsWith("{{");

function hold(source) {
  const tokens = [];
  return { tokens, text: source.replace(TOKEN, (token) => `\uE000${tokens.push(token) - 1}\uE001`) };
}

const release = (text, tokens) => text.replace(HELD, (_, number) => tokens[number]);

// ---- What a text says, however it is written down: two texts with the same canonical form look the same in a letter.

function canonical(html) {
  const body = parsed(html);
  wrap(body);
  for (const node of [...body.querySelectorAll("*")]) if (SAME[node.tagName]) rename(node, SAME[node.tagName]);
  body.normalize();
  const texts = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replace(/[ \t\r\n\f]+/g, " ");
  for (const node of [body, ...body.querySelectorAll("*")]) if (!INLINE.test(node.nodeName)) trim(node);
  return body.innerHTML;
}

// Inline content beside blocks becomes a block of its own, as Squire has it.
function wrap(node) {
  if ([...node.childNodes].every(isInline) && node.nodeName !== "BODY") return;
  let line = null;
  for (const child of [...node.childNodes]) {
    if (child.nodeName === "BR") {
      line ??= node.insertBefore(node.ownerDocument.createElement("div"), child);
      if (!line.textContent.trim()) line.append(child);
      else child.remove();
      line = null;
    } else if (isInline(child)) {
      if (!line && child.nodeName === "#text" && !child.data.trim()) continue;
      line ??= node.insertBefore(node.ownerDocument.createElement("div"), child);
      line.append(child);
    } else {
      line = null;
      wrap(child);
    }
  }
}

function rename(node, name) {
  const made = node.ownerDocument.createElement(name);
  for (const { name: key, value } of node.attributes) made.setAttribute(key, value);
  made.append(...node.childNodes);
  node.replaceWith(made);
  return made;
}

// Blanks at the edges of a block, and between blocks, are not seen.
function trim(block) {
  const blocks = [...block.childNodes].some((one) => !isInline(one));
  for (const child of [...block.childNodes]) {
    if (child.nodeName !== "#text") continue;
    if (!child.data.trim() && blocks) child.remove();
  }
  const edge = (last) => {
    let node = last ? block.lastChild : block.firstChild;
    while (node && node.nodeName !== "#text" && INLINE.test(node.nodeName) && node.firstChild) node = last ? node.lastChild : node.firstChild;
    if (node?.nodeName === "#text") node.data = last ? node.data.replace(/ +$/, "") : node.data.replace(/^ +/, "");
  };
  edge(false);
  edge(true);
  const { lastChild } = block; // nor is a line break after the last words
  if (lastChild?.nodeName === "BR" && lastChild.previousSibling && lastChild.previousSibling.nodeName !== "BR") lastChild.remove();
}

// A condition may hold words of a line, or whole blocks; never the end of one line and the begin of the next.
function splitsConditions(html, tokens) {
  const body = parsed(html);
  wrap(body);
  return [...body.querySelectorAll("div:not([class], [style], [align])")].some((line) => {
    const held = [...line.textContent.matchAll(HELD)].map((found) => tokens[found[1]]);
    if (!held.some(isStatement) || isOnlyStatements(line, tokens)) return false;
    let depth = 0;
    for (const token of held) {
      if (/^\{%-?\s*(if|for|raw)\b/.test(token)) depth += 1;
      if (/^\{%-?\s*end(if|for|raw)\b/.test(token)) depth -= 1;
      if (depth < 0) return true;
    }
    return depth !== 0;
  });
}

function isOnlyStatements(line, tokens) {
  if (line.nodeName !== "DIV" || line.attributes.length || line.children.length) return false;
  const held = [...line.textContent.matchAll(HELD)];
  return held.length > 0 && held.every((found) => isStatement(tokens[found[1]])) && !line.textContent.replace(HELD, "").trim();
}

// ---- Chips

function chipOf(token) {
  const chip = document.createElement("span");
  chip.className = isStatement(token) ? "chip decides" : "chip";
  chip.contentEditable = "false";
  chip.dataset.token = token;
  chip.textContent = token.slice(2, -2).replace(/^-|-$/g, "").trim() || token;
  return chip;
}

// Text nodes may have tokens as such, or their places.
function withChips(fragment, tokens) {
  const texts = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) found.push(texts.currentNode);
  const any = new RegExp(`${TOKEN.source}|${HELD.source}`, "gs");
  for (const text of found) {
    text.data = text.data.replace(/[ \t\r\n\f]+/g, " "); // the view shows blanks as they are, lest a browser makes them &nbsp;
    const parts = [];
    let last = 0;
    for (const one of text.data.matchAll(any)) {
      parts.push(text.data.slice(last, one.index), chipOf(one[1] === undefined ? one[0] : tokens[one[1]]));
      last = one.index + one[0].length;
    }
    if (parts.length) text.replaceWith(...[...parts, text.data.slice(last)].filter((part) => part !== ""));
  }
  return fragment;
}

const chipAround = (node) => (node.nodeType === 1 ? node : node.parentElement)?.closest("[data-token]") ?? null;

const asTyped = (html) => {
  const body = parsed(html);
  for (const chip of body.querySelectorAll("[data-token]")) chip.replaceWith(chip.dataset.token);
  return body;
};

// ---- One text, two views

class LetterEditor {
  constructor(place) {
    this.place = place;
    this.box = place.querySelector("textarea");
    this.box.required = false; // where it is hidden, a browser could not say what is missing; the server does
    this.view = place.querySelector("[data-view]");
    this.bar = place.querySelector("[data-bar]");
    this.modes = place.querySelector("[data-modes]");
    this.why = place.querySelector("[data-why]");
    this.switch = document.getElementById(place.dataset.switch);
    this.tokens = [];
    this.config = PASTED;
    this.squire = new Squire(this.view, {
      blockTag: "P", addLinks: false, sanitizeToDOMFragment: (html) => this.cleaned(html),
      willCutCopy: (html) => release(asTyped(html.replaceAll(NO_WIDTH, "")).innerHTML, this.tokens), toPlainText: (html) => asTyped(html.replaceAll(NO_WIDTH, "")).innerText,
      undo: { documentSizeThreshold: 50000, undoLimit: 100 },
    });
    this.squire.addEventListener("input", () => this.write());
    for (const what of ["pathChange", "select", "cursor", "undoStateChange"]) this.squire.addEventListener(what, () => this.press());
    this.squire.setKeyHandler("Ctrl-k", (_, event) => { event.preventDefault(); this.ask(); });
    this.squire.setKeyHandler("PageUp", null);
    this.squire.setKeyHandler("PageDown", null);
    this.view.addEventListener("keydown", (event) => {
      if (event.key === "F10" && event.altKey) { event.preventDefault(); this.bar.querySelector("[tabindex='0']").focus(); }
    });
    this.modes.addEventListener("click", (event) => { if (event.target.dataset.mode) this.choose(event.target.dataset.mode === "write", true); });
    this.box.addEventListener("input", () => { if (!this.writes) this.tell(""); });
    this.place.querySelector("label").addEventListener("click", () => { if (this.writes) this.view.focus(); });
    this.switch?.addEventListener("change", () => this.begin());
    this.keys();
    this.tools();
    this.linking();
    this.begin();
  }

  get isHtml() { return this.place.dataset.switch ? Boolean(this.switch?.checked) : true; }

  begin() {
    this.modes.hidden = !this.isHtml;
    this.choose(this.isHtml, false);
  }

  choose(write, focus) {
    const why = write ? this.load() : "";
    this.writes = write && !why;
    this.view.hidden = this.bar.hidden = !this.writes;
    this.box.hidden = this.writes;
    for (const one of this.modes.querySelectorAll("button")) one.setAttribute("aria-pressed", String((one.dataset.mode === "write") === this.writes));
    this.tell(why);
    if (focus) (this.writes ? this.squire : this.box).focus();
  }

  tell(why) {
    this.why.textContent = why;
    this.why.hidden = !why;
  }

  // Reads the box into the view. Answers why not, or "".
  load() {
    const source = this.box.value.replaceAll("\r\n", "\n");
    if (source === this.known) return "";
    const { holds, other, long } = this.why.dataset;
    if (source.length > LONGEST) return long;
    const { tokens, text } = hold(source);
    const found = text.match(NOT_WRITTEN);
    if (found) return holds.replace("{what}", found[1] === "!--" || found[2] ? "<!-- -->" : `<${found[1].toLowerCase()}>`);
    if (/[\uE000-\uF8FF\u200B]/.test(source) || ACTS.test(text) || splitsConditions(text, tokens)) return other;
    this.tokens = tokens;
    this.names = ownNames(text);
    this.config = READ;
    this.squire.setHTML(text);
    this.config = PASTED;
    this.known = source;
    const [wanted, held] = [canonical(text), hold(this.text(false))];
    this.endsEmpty = EMPTY_END.test(wanted);
    this.written = this.text();
    if (canonical(held.text) !== wanted || held.tokens.join("\0") !== tokens.join("\0")) {
      this.known = undefined;
      return other;
    }
    return "";
  }

  cleaned(html) {
    const wanted = this.config === READ ? html : readable(html);
    const clean = document.importNode(DOMPurify.sanitize(wanted, this.config), true);
    if (this.config === PASTED) for (const link of clean.querySelectorAll("a:not([href])")) link.replaceWith(...link.childNodes);
    return withChips(clean, this.tokens);
  }

  // The view as a template: chips are tokens, lines that only decide have no element around them.
  text(short = !this.endsEmpty) {
    const tokens = this.tokens.slice();
    const body = parsed(this.squire.getHTML());
    for (const chip of body.querySelectorAll("[data-token]")) chip.replaceWith(`\uE000${tokens.push(chip.dataset.token) - 1}\uE001`);
    for (const [own, theirs] of this.names) for (const one of body.querySelectorAll(theirs)) rename(one, own);
    body.normalize();
    for (const line of [...body.querySelectorAll("div")]) if (isOnlyStatements(line, tokens)) line.replaceWith(...line.childNodes);
    const empty = !body.textContent.trim() && !body.querySelector("img");
    const blocks = [...body.childNodes].map((one) => {
      const around = body.ownerDocument.createElement("div");
      around.append(one);
      return around.innerHTML;
    });
    const html = empty ? "" : short ? blocks.join("\n").replace(EMPTY_END, "") : blocks.join("\n");
    return release(html.replace(TOKEN, (token) => parsed(token).textContent.replaceAll("\u00A0", " ")), tokens);
  }

  write() {
    this.becomeChips();
    const text = this.text();
    if (!this.writes || text === this.written) return;
    this.written = this.known = text;
    this.box.value = text;
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // A field that was typed by hand becomes a chip with its last brace.
  becomeChips() {
    const { startContainer: text, startOffset: at, collapsed } = this.squire.getSelection();
    if (!collapsed || text.nodeName !== "#text" || text.parentElement.closest("[data-token]")) return;
    const typed = [...text.data.slice(0, at).matchAll(TOKEN)].pop();
    if (!typed || typed.index + typed[0].length !== at) return;
    const range = document.createRange();
    range.setStart(text, typed.index);
    range.setEnd(text, at);
    this.put(typed[0], range);
  }

  put(token, range = this.squire.getSelection()) {
    this.squire.saveUndoState(range);
    range.deleteContents();
    const chip = chipOf(token);
    this.squire.insertElement(chip, range);
    this.beside(chip, true);
  }

  // ---- Chips are passed, chosen and removed as a whole; Squire and browsers would go into them.

  keys() {
    for (const what of ["keydown", "beforeinput", "cut", "copy", "paste"]) this.view.addEventListener(what, () => this.whole(), true);
    const verbs = {
      ArrowLeft: [true, (chip) => this.beside(chip, false)], ArrowRight: [false, (chip) => this.beside(chip, true)],
      Backspace: [true, (chip) => this.remove(chip)], Delete: [false, (chip) => this.remove(chip)],
    };
    for (const [key, [back, verb]] of Object.entries(verbs)) {
      const usual = this.squire._keyHandlers[key];
      this.squire.setKeyHandler(key, (squire, event, range) => {
        const chip = this.neighbour(back);
        if (!chip) { usual?.(squire, event, range); return; }
        event.preventDefault();
        verb(chip);
      });
    }
  }

  whole() {
    const range = this.squire.getSelection();
    const [first, last] = [range.startContainer, range.endContainer].map(chipAround);
    if (!first && !last) return;
    if (range.collapsed) { this.beside(first, range.startOffset > 0); return; }
    if (first) range.setStartBefore(first);
    if (last) range.setEndAfter(last);
    this.squire.setSelection(range);
  }

  // The chip next to the cursor, if there is nothing between.
  neighbour(back) {
    const { startContainer, startOffset, collapsed } = this.squire.getSelection();
    if (!collapsed) return null;
    let node = startContainer;
    if (node.nodeType === 3) {
      const between = back ? node.data.slice(0, startOffset) : node.data.slice(startOffset);
      if (between.replaceAll(NO_WIDTH, "")) return null;
      node = back ? node.previousSibling : node.nextSibling;
    } else node = node.childNodes[back ? startOffset - 1 : startOffset];
    while (node?.nodeType === 3 && !node.data.replaceAll(NO_WIDTH, "")) node = back ? node.previousSibling : node.nextSibling;
    return node?.dataset?.token === undefined ? null : node;
  }

  // Puts the cursor beside a chip, into a text, because browsers show none between two chips or at an end.
  beside(chip, after) {
    let text = after ? chip.nextSibling : chip.previousSibling;
    if (text?.nodeType !== 3) {
      text = document.createTextNode(NO_WIDTH);
      this.squire.modifyDocument(() => (after ? chip.after(text) : chip.before(text)));
    }
    const range = document.createRange();
    range.setStart(text, after ? Number(text.data.startsWith(NO_WIDTH)) : text.length);
    range.collapse(true);
    this.squire.setSelection(range);
  }

  remove(chip) {
    this.squire.saveUndoState();
    this.beside(chip, false);
    chip.remove();
  }

  insert(token) {
    this.squire.focus();
    this.put(token);
  }

  // ---- Tools: one stop of the tab key, arrow keys within

  tools() {
    const all = [...this.bar.querySelectorAll("button")];
    all.forEach((one, number) => { one.tabIndex = number ? -1 : 0; });
    this.bar.addEventListener("mousedown", (event) => event.preventDefault()); // the selection stays
    this.bar.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.act(button.dataset.do, button.getAttribute("aria-pressed") === "true");
    });
    this.bar.addEventListener("keydown", (event) => {
      const at = all.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (to === undefined || at < 0) return;
      event.preventDefault();
      const wanted = all[(to + all.length) % all.length];
      for (const one of all) one.tabIndex = one === wanted ? 0 : -1;
      wanted.focus();
    });
  }

  act(what, pressed) {
    const { squire } = this;
    const verbs = {
      bold: () => (pressed ? squire.removeBold() : squire.bold()),
      italic: () => (pressed ? squire.removeItalic() : squire.italic()),
      link: () => this.ask(),
      h1: () => this.head(pressed ? "P" : "H1"),
      h2: () => this.head(pressed ? "P" : "H2"),
      list: () => (pressed ? squire.removeList() : squire.makeUnorderedList()),
      numbers: () => (pressed ? squire.removeList() : squire.makeOrderedList()),
      quote: () => (pressed ? squire.decreaseQuoteLevel() : squire.increaseQuoteLevel()),
      clear: () => this.clear(),
      undo: () => squire.undo(),
      redo: () => squire.redo(),
    };
    verbs[what]();
    this.press();
  }

  clear() {
    const { squire } = this;
    squire.removeAllFormatting();
    if (squire.hasFormat("UL") || squire.hasFormat("OL")) squire.removeList();
    if (squire.hasFormat("BLOCKQUOTE")) squire.removeQuote();
    this.head("P");
  }

  head(name) {
    this.squire.modifyBlocks((fragment) => {
      for (const one of [...fragment.children]) if (/^(P|DIV|H[1-6])$/.test(one.tagName)) rename(one, name);
      return fragment;
    });
    this.squire.focus();
  }

  press() {
    const { squire } = this;
    const tags = { bold: "B", italic: "I", link: "A", h1: "H1", h2: "H2", list: "UL", numbers: "OL", quote: "BLOCKQUOTE" };
    for (const [what, tag] of Object.entries(tags)) this.bar.querySelector(`[data-do="${what}"]`).setAttribute("aria-pressed", String(squire.hasFormat(tag)));
  }

  // ---- Links

  linking() {
    this.dialog = this.place.querySelector("[data-link-to]");
    const box = this.dialog.querySelector("input");
    box.addEventListener("input", (event) => event.stopPropagation()); // it is no part of the letter
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.link("take"); } });
    this.dialog.addEventListener("click", (event) => { if (event.target.dataset.link) this.link(event.target.dataset.link); });
    // Not on "close", which comes late: by then whoever types may have gone on to another tool.
    this.dialog.addEventListener("cancel", (event) => { event.preventDefault(); this.link("cancel"); });
  }

  ask() {
    this.at = this.squire.getSelection();
    const node = this.at.startContainer;
    const link = (node.nodeType === 1 ? node : node.parentElement).closest("a");
    this.dialog.querySelector("input").value = link && this.view.contains(link) ? release(link.getAttribute("href") || "", this.tokens) : "";
    this.dialog.showModal();
  }

  link(what) {
    const address = this.dialog.querySelector("input").value.trim();
    this.dialog.close();
    this.squire.focus();
    this.squire.setSelection(this.at);
    if (what === "remove") this.squire.removeLink();
    if (what === "take" && addressed(address)) this.squire.makeLink(addressed(address));
  }
}

// The address of a link as typed: a field, a known scheme, or a name of a server.
function addressed(typed) {
  if (/^(\{\{|https?:|mailto:|tel:|#)/i.test(typed)) return typed;
  if (/^[a-z][a-z0-9+.-]*:/i.test(typed) && !/^[^/:]+:\d/.test(typed)) return "";
  return typed && `https://${typed}`;
}

// Cells of a pasted table keep their distance, and bullets that Word has drawn itself are not doubled.
const readable = (html) => html
  .replace(/[\u200B\uE000-\uF8FF]/g, "")
  .replace(/<!--\[if !supportLists\]-->[\s\S]*?<!--\[endif\]-->/g, "")
  .replace(/<(style|title|script|xml)\b[\s\S]*?<\/\1>/gi, "")
  .replace(/<\/t[dh]>/gi, " $&").replace(/<\/tr>/gi, "<br>$&");

// ---- Fields to insert: into whichever text had the focus last

class FieldChips {
  constructor(form, editors) {
    this.form = form;
    this.editors = editors;
    this.place = form.querySelector("[data-fields]");
    form.addEventListener("focusin", (event) => {
      if (event.target.matches("textarea, [name='subject'], [data-view]")) this.last = event.target;
    });
    this.place.addEventListener("mousedown", (event) => { if (event.target.closest("[data-insert]")) event.preventDefault(); });
    this.place.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.insert) this.insert(button.dataset.insert);
      else if (button) this.another();
    });
    this.box = this.place.querySelector("[data-another]");
    this.box.addEventListener("input", (event) => event.stopPropagation());
    this.box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.another(); } });
  }

  insert(token) {
    const editor = this.editors.find((one) => one.writes && one.place.offsetParent);
    const target = this.last?.offsetParent ? this.last : editor?.view || this.form.querySelector("textarea:not([hidden])");
    if (editor && target === editor.view) { editor.insert(token); return; }
    target.focus();
    if (document.execCommand("insertText", false, token)) return; // so that undo knows it
    target.setRangeText(token, target.selectionStart, target.selectionEnd, "end");
    target.dispatchEvent(new Event("input", { bubbles: true }));
  }

  another() {
    const name = this.box.value.trim();
    if (!/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name)) { this.box.focus(); return; }
    this.offer([name]);
    this.box.value = "";
    this.insert(`{{ ${name} }}`);
  }

  offer(names) {
    for (const name of names) {
      const token = `{{ ${name} }}`;
      if ([...this.place.querySelectorAll("[data-insert]")].some((one) => one.dataset.insert === token)) continue;
      const button = document.createElement("button");
      const code = document.createElement("code");
      Object.assign(button, { type: "button", className: "field-chip" });
      button.dataset.insert = token;
      code.textContent = token;
      button.append(code);
      this.box.parentElement.before(button, " ");
    }
  }
}

// ---- The preview: one request at a time, and not more than about one a second

class FollowingPreview {
  constructor(form, chips) {
    this.form = form;
    this.chips = chips;
    this.place = form.querySelector("[data-follows]");
    this.shown = this.place.querySelector("[data-shown]");
    this.stale = this.place.querySelector("[data-stale]");
    this.last = 0;
    form.addEventListener("input", () => this.soon());
    form.addEventListener("change", (event) => { if (event.target.matches("select, [type='checkbox']")) this.soon(); });
    this.soon();
  }

  soon() {
    clearTimeout(this.timer);
    this.again = Boolean(this.asking);
    if (!this.asking) this.timer = setTimeout(() => this.ask(), Math.max(DEBOUNCE, this.last + APART - Date.now()));
  }

  async ask() {
    this.asking = true;
    try {
      const answer = await fetch(this.place.dataset.follows, { method: "POST", body: this.texts(), signal: AbortSignal.timeout(PATIENCE) });
      const out = answer.redirected || answer.status === 403;
      if (out || !answer.ok) this.tell(out ? "out" : "away");
      else this.show(parsed(await answer.text()));
    } catch {
      this.tell("away");
    }
    this.asking = false;
    this.last = Date.now();
    if (this.again) this.soon();
  }

  texts() {
    const sent = new URLSearchParams();
    for (const [name, value] of new FormData(this.form)) {
      if (/^(csrfmiddlewaretoken|subject|html|text|body|field\..*)$/.test(name) && typeof value === "string") sent.append(name, value);
    }
    sent.set("channel", channelOf(this.form));
    if (this.form.dataset.draft) sent.set("draft", this.form.dataset.draft);
    return sent;
  }

  // A campaign without HTML, or by SMS, has its text as the body.
  get isText() {
    const { html } = this.form.elements;
    return html?.type === "textarea" && (!html.value.trim() || channelOf(this.form) === "sms");
  }

  tell(what) {
    const text = what ? this.stale.dataset[what] : "";
    if (this.stale.textContent !== text) this.stale.textContent = text;
    this.stale.hidden = !text;
  }

  show(answer) {
    const letter = answer.firstElementChild;
    const { fields } = letter.dataset;
    const part = letter.dataset.part === "body" && this.isText ? "text" : letter.dataset.part;
    for (const place of this.form.querySelectorAll("[data-fault]")) {
      const said = place.dataset.fault === part ? letter.textContent : "";
      if (place.textContent !== said) place.textContent = said;
    }
    this.tell(part ? "behind" : "");
    if (part) return;
    this.chips.offer(fields.split(" ").filter(Boolean));
    const old = this.shown.querySelector("iframe"), made = letter.querySelector("iframe");
    if (old && made && old.srcdoc !== made.srcdoc) scrollAsBefore(old);
    Idiomorph.morph(this.shown, letter.innerHTML, { morphStyle: "innerHTML" });
    this.samples(answer.querySelector("[data-new-samples]"));
  }

  samples(made) {
    const place = this.form.querySelector("[data-samples]");
    if (!place || !made) return;
    const names = (of) => [...of.querySelectorAll("input")].map((one) => one.name).join();
    if (names(place) !== names(made)) place.replaceChildren(...made.childNodes);
    place.hidden = !place.querySelector("input");
  }
}

function scrollAsBefore(frame) {
  const { scrollX, scrollY } = frame.contentWindow;
  frame.addEventListener("load", () => frame.contentWindow.scrollTo(scrollX, scrollY), { once: true });
}

function channelOf(form) {
  const of = form.dataset.channels ? JSON.parse(form.dataset.channels)[form.elements.by?.value] : "";
  return of || form.elements.channel?.value || form.dataset.channel || "";
}

// An SMS has neither subject nor HTML; what is typed there already stays in sight.
function showParts(form) {
  const sms = channelOf(form) === "sms";
  for (const part of form.querySelectorAll("[data-not-sms]")) {
    const typed = [...part.querySelectorAll("textarea, [name='subject']")].some((one) => one.value.trim());
    part.hidden = sms && !typed;
  }
}

// Registered after wizard.js, which puts back what was typed before.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("form[data-editor]");
  if (!form) return;
  showParts(form);
  form.addEventListener("change", (event) => { if (event.target.matches("select")) showParts(form); });
  const editors = [...form.querySelectorAll("[data-letter]")].map((place) => new LetterEditor(place));
  new FollowingPreview(form, new FieldChips(form, editors));
  // Whoever comes back by the browser's button finds what was typed; some put it into the boxes late.
  window.addEventListener("pageshow", () => { for (const one of editors) if (one.writes) one.choose(true, false); });
});
