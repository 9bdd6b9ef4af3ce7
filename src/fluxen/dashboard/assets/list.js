// A list of which only the rows in view exist, so that ten thousand scroll as ten do. Rows are walked with the arrow keys.

import { fill, h } from "./format.js";

const SPARE = 6;
const NARROW = matchMedia("(max-width: 700px)"); // as in style.css
let made = 0;

export class List {
  /** `row(item)` makes a row's cells; `open(item)` is what Enter and a click do. */
  constructor(box, { height, tall = height, row, open, head, label, empty }) {
    Object.assign(this, { heights: [height, tall], row, open, items: [], at: 0, key: "", empty, id: `list-${++made}` });
    this.space = h("div", { class: "list-space" });
    this.box = h("div", { class: "list", role: "listbox", tabindex: "0", "aria-label": label, onscroll: () => this.draw(), onkeydown: (event) => this.pressed(event) }, this.space);
    this.head = head ? h("div", { class: "list-head" }, head) : null;
    fill(box, this.head, this.box);
    new ResizeObserver(() => this.draw(true)).observe(this.box);
  }

  /** Of a row: more where the page is narrow, so that text which does not fit beside other text has lines of its own. */
  get height() {
    return this.heights[NARROW.matches ? 1 : 0];
  }

  show(items) {
    this.items = items;
    this.at = Math.min(this.at, Math.max(0, items.length - 1));
    this.draw(true);
  }

  draw(anew = false) {
    if (anew) this.space.style.height = `${Math.max(1, this.items.length) * this.height}px`;
    const top = Math.max(0, Math.floor(this.box.scrollTop / this.height) - SPARE);
    const end = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.height) + SPARE);
    const key = `${top}/${end}/${this.at}`;
    if (!anew && key === this.key) return;
    this.key = key;
    const rows = [];
    for (let number = top; number < end; number++) {
      const item = this.items[number];
      const made = h("div", { id: `${this.id}-${number}`, class: "list-row", role: "option", "aria-selected": String(number === this.at), onclick: () => this.pick(number) }, this.row(item));
      made.style.top = `${number * this.height}px`;
      made.style.height = `${this.height}px`;
      rows.push(made);
    }
    if (!this.items.length) rows.push(h("p", { class: "quiet pad" }, this.empty));
    fill(this.space, rows);
    const seen = this.at >= top && this.at < end;
    this.box.setAttribute("aria-activedescendant", seen ? `${this.id}-${this.at}` : "");
  }

  pick(number) {
    this.at = number;
    this.draw(true);
    this.open?.(this.items[number]);
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && this.items.length) this.pick(this.at);
    else if (step == null) return;
    else {
      this.at = Math.max(0, Math.min(this.items.length - 1, this.at + step));
      const top = this.at * this.height;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      else if (top + this.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + this.height - this.box.clientHeight;
      this.draw(true);
    }
    event.preventDefault();
  }
}
