// The placement map: a tile per site, a cell per partition group, on one canvas. A thousand sites of four groups each
// are drawn as quickly as two sites of a hundred.

import { bytes, count, css, percent, seconds } from "./format.js";

const GAP = 6, BAR = 3, LABEL = 13, FADE = 8000, TALLEST = 460;
const STEPS = 40;
const SIZES = [24, 20, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3];

export class PlacementMap {
  constructor(canvas, { tip, told, open }) {
    Object.assign(this, { canvas, tip, told, open, stage: null, colour: "rows", found: null, at: null, hover: null, moved: new Map(), shades: [] });
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (event) => this.clicked(event));
    canvas.addEventListener("keydown", (event) => this.pressed(event));
    canvas.addEventListener("focus", () => { this.at ??= { site: 0, place: 0 }; this.tell(); this.draw(); });
    canvas.addEventListener("blur", () => this.draw());
    new ResizeObserver(() => { this.layout(); this.draw(); }).observe(canvas.parentElement);
    this.themed();
  }

  themed() {
    this.shades = ["--heat-0", "--heat-1", "--heat-2", "--heat-3", "--heat-4"].map((name) => parse(css(name)));
    this.ink = { muted: css("--muted"), text: css("--text"), line: css("--line"), busy: css("--c1"), held: css("--c2"), full: css("--bad"), focus: css("--focus"), disk: css("--disk"), tile: css("--tile") };
  }

  /** `stage` as the server tells it; groups that changed site since the last one light up for a while. */
  show(stage) {
    const before = this.stage;
    if (before && before.number === stage.number && before.placement.length <= stage.placement.length)
      before.placement.forEach((site, group) => site !== stage.placement[group] && this.moved.set(group, performance.now()));
    else this.moved.clear();
    this.stage = stage;
    const columns = stage.group_columns;
    this.values = stage.placement.map((_, group) => (this.colour === "bytes" ? columns.bytes[group] ?? 0 : columns.rows_in[group] ?? 0));
    this.most = this.values.reduce((most, value) => Math.max(most, value), 0);
    this.groups = Array.from({ length: stage.sites }, () => []);
    stage.placement.forEach((site, group) => this.groups[site]?.push(group));
    this.disk = new Set(stage.on_disk);
    this.busiest = stage.site_columns.busy.reduce((most, busy) => Math.max(most, busy), 0);
    this.layout();
    this.draw();
  }

  /** The largest cells with which everything fits. */
  layout() {
    if (!this.stage) return;
    const width = Math.floor(this.canvas.parentElement.clientWidth);
    const most = Math.max(1, ...this.groups.map((groups) => groups.length));
    for (const cell of SIZES) {
      const label = this.stage.sites <= 128 ? LABEL : 0;
      // as wide as the page where the sites stand in one row, otherwise about twice as wide as high
      const even = Math.floor((width / this.stage.sites - GAP) / cell), square = Math.ceil(Math.sqrt(most * 2.4));
      const across = Math.max(1, Math.min(Math.floor((width - 8) / cell), Math.max(square, Math.min(even, most))));
      const tile = { width: Math.max(across * cell, label ? 76 : 8), height: label + Math.ceil(most / across) * cell + 2 * BAR + 3 };
      const columns = Math.max(1, Math.floor((width + GAP) / (tile.width + GAP)));
      const height = Math.ceil(this.stage.sites / columns) * (tile.height + GAP);
      this.shape = { cell, label, across, tile, columns, width, height };
      if (height <= TALLEST) break;
    }
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = Math.max(40, this.shape.height) * scale;
    this.canvas.style.height = `${Math.max(40, this.shape.height)}px`;
  }

  draw() {
    if (!this.stage || !this.shape) return;
    const paint = this.canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, this.shape.width, this.shape.height);
    // cells of one shade are filled at once: a thousand sites have four thousand
    this.cells = Array.from({ length: 2 * STEPS + 3 }, () => new Path2D());
    for (let site = 0; site < this.stage.sites; site++) this.drawSite(paint, site);
    this.cells.forEach((path, number) => {
      const disk = number === 2 * STEPS + 2, dim = !disk && number > STEPS;
      paint.globalAlpha = dim ? 0.15 : 1;
      paint.fillStyle = disk ? this.ink.disk : this.shade((dim ? number - STEPS - 1 : number) / STEPS);
      paint.fill(path);
    });
    paint.globalAlpha = 1;
    this.drawMarks(paint);
    if (this.moved.size) {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.draw(), 400);
    }
  }

  corner(site) {
    const { columns, tile } = this.shape;
    return [(site % columns) * (tile.width + GAP), Math.floor(site / columns) * (tile.height + GAP)];
  }

  drawSite(paint, site) {
    const { cell, label, across, tile } = this.shape, [x, y] = this.corner(site);
    const edge = cell > 5 ? 1 : 0;
    paint.fillStyle = this.ink.tile;
    paint.fillRect(x, y + label, tile.width, tile.height - label);
    if (label) {
      paint.fillStyle = this.found && !this.found.sites.has(site) ? this.ink.line : this.ink.muted;
      paint.font = "11px system-ui, sans-serif";
      paint.textBaseline = "top";
      paint.fillText(`site ${site}`, x, y);
    }
    this.groups[site].forEach((group, place) => {
      const left = x + (place % across) * cell, top = y + label + Math.floor(place / across) * cell;
      const dim = this.found && !this.found.groups.has(group) && !this.found.sites.has(site);
      const shade = this.most ? Math.round(Math.sqrt(this.values[group] / this.most) * STEPS) : 0;
      this.cells[dim ? shade + STEPS + 1 : shade].rect(left, top, cell - edge, cell - edge);
      if (this.disk.has(group) || (this.stage.group_spilled[group] ?? 0) > 0)
        this.cells.at(-1).rect(left, top + cell - edge - Math.max(1, cell / 4), cell - edge, Math.max(1, cell / 4));
    });
    const busy = this.stage.site_columns.busy[site] ?? 0, held = this.stage.site_columns.state_bytes[site] ?? 0, limit = this.stage.limit?.[site];
    const bottom = y + tile.height - 2 * BAR - 1;
    if (this.busiest > 0) bar(paint, x, bottom, tile.width, busy / this.busiest, this.ink.busy, this.ink.line);
    if (limit) bar(paint, x, bottom + BAR + 1, tile.width, held / limit, held > 0.9 * limit ? this.ink.full : this.ink.held, this.ink.line);
  }

  drawMarks(paint) {
    const now = performance.now(), { cell } = this.shape;
    for (const [group, since] of this.moved) {
      if (now - since > FADE) this.moved.delete(group);
      else this.outline(paint, group, this.ink.focus, 1 - (now - since) / FADE, Math.max(1.5, cell / 8));
    }
    if (this.hover?.group != null) this.outline(paint, this.hover.group, this.ink.text, 1, 1.5);
    const chosen = document.activeElement === this.canvas ? this.groups[this.at?.site]?.[this.at.place] : null;
    if (chosen != null) this.outline(paint, chosen, this.ink.focus, 1, 2.5);
    else if (document.activeElement === this.canvas && this.at) {
      const [x, y] = this.corner(this.at.site);
      paint.strokeStyle = this.ink.focus;
      paint.strokeRect(x, y, this.shape.tile.width, this.shape.tile.height);
    }
  }

  outline(paint, group, colour, alpha, width) {
    const site = this.stage.placement[group], place = this.groups[site]?.indexOf(group) ?? -1;
    if (place < 0) return;
    const { cell, label, across } = this.shape, [x, y] = this.corner(site);
    paint.globalAlpha = alpha;
    paint.strokeStyle = colour;
    paint.lineWidth = width;
    paint.strokeRect(x + (place % across) * cell - 0.5, y + label + Math.floor(place / across) * cell - 0.5, cell, cell);
    paint.globalAlpha = 1;
  }

  /** The colour of a share; the caller has taken its root, which spreads the small values, of which there are many. */
  shade(share) {
    const place = Math.min(1, Math.max(0, share)) * (this.shades.length - 1), low = Math.min(this.shades.length - 2, Math.floor(place));
    const [a, b] = [this.shades[low], this.shades[low + 1]];
    return `rgb(${a.map((value, part) => Math.round(value + (b[part] - value) * (place - low))).join(" ")})`;
  }

  hit(event) {
    const box = this.canvas.getBoundingClientRect(), { cell, label, across, tile, columns } = this.shape;
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const column = Math.floor(x / (tile.width + GAP)), row = Math.floor(y / (tile.height + GAP)), site = row * columns + column;
    if (column >= columns || site < 0 || site >= this.stage.sites) return null;
    const [left, top] = this.corner(site), inX = x - left, inY = y - top - label;
    const place = inY >= 0 && inX < across * cell ? Math.floor(inY / cell) * across + Math.floor(inX / cell) : -1;
    return { site, group: this.groups[site][place] ?? null };
  }

  point(event) {
    if (!this.stage) return;
    const before = this.hover;
    this.hover = event ? this.hit(event) : null;
    this.canvas.style.cursor = this.hover ? "pointer" : "";
    this.tip.hidden = !this.hover;
    if (this.hover) {
      this.tip.textContent = this.told_of(this.hover);
      const box = this.canvas.parentElement.getBoundingClientRect();
      this.tip.style.left = `${Math.min(event.clientX - box.left + 14, Math.max(0, box.width - 230))}px`;
      this.tip.style.top = `${event.clientY - box.top + 16}px`;
    }
    if (before?.group !== this.hover?.group) this.draw();
  }

  told_of({ site, group }) {
    const seen = this.stage.site_columns, limit = this.stage.limit?.[site];
    const own = group == null ? null : this.stage.keys.find(([, number]) => number === group);
    const lines = group == null ? [] : [
      `group ${group}${own ? `, key ${own[0]}` : ""}`,
      `${count(this.stage.group_columns.rows_in[group] ?? 0)} rows in, ${count(this.stage.group_columns.rows_out[group] ?? 0)} out, ${bytes(this.stage.group_columns.bytes[group] ?? 0)}`,
    ];
    if (group != null && this.stage.group_spilled[group]) lines.push(`${bytes(this.stage.group_spilled[group])} on disk`);
    lines.push(`site ${site}: ${this.groups[site].length} groups, busy ${seconds(seen.busy[site] ?? 0)}`);
    lines.push(`${bytes(seen.state_bytes[site] ?? 0)} of state${limit ? `, ${percent((seen.state_bytes[site] ?? 0) / limit)} of its limit` : ""}`);
    return lines.join("\n");
  }

  tell() {
    if (!this.stage || !this.at) return;
    this.told.textContent = this.told_of({ site: this.at.site, group: this.groups[this.at.site]?.[this.at.place] ?? null }).replaceAll("\n", "; ");
  }

  clicked(event) {
    const found = this.hit(event);
    if (!found) return;
    this.at = { site: found.site, place: Math.max(0, this.groups[found.site].indexOf(found.group)) };
    if (found.group == null) this.open("site", found.site);
    else this.open("group", found.group);
  }

  pressed(event) {
    if (!this.stage || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = (this.at ??= { site: 0, place: 0 }), group = this.groups[at.site]?.[at.place], { across, columns } = this.shape;
    if (event.key === "Enter") group == null ? this.open("site", at.site) : this.open("group", group);
    else if (event.key === "s" || event.key === "S") this.open("site", at.site);
    else if (!this.walk(at, event.key, across, columns)) return;
    event.preventDefault();
    this.tell();
    this.draw();
  }

  walk(at, key, across, columns) {
    const sites = this.stage.sites, size = () => Math.max(1, this.groups[at.site].length);
    const to = (site, place) => {
      if (site < 0 || site >= sites) return;
      at.site = site;
      at.place = Math.max(0, Math.min(size() - 1, place));
    };
    if (key === "ArrowRight") at.place + 1 < size() ? at.place++ : to(at.site + 1, 0);
    else if (key === "ArrowLeft") at.place > 0 ? at.place-- : to(at.site - 1, Infinity);
    else if (key === "ArrowDown") at.place + across < size() ? (at.place += across) : to(at.site + columns, at.place % across);
    else if (key === "ArrowUp") at.place >= across ? (at.place -= across) : to(at.site - columns, at.place);
    else if (key === "Home") to(0, 0);
    else if (key === "End") to(sites - 1, 0);
    else return false;
    return true;
  }
}

function bar(paint, x, y, width, share, colour, ground) {
  paint.fillStyle = ground;
  paint.fillRect(x, y, width, BAR);
  paint.fillStyle = colour;
  paint.fillRect(x, y, Math.max(share > 0 ? 1 : 0, Math.min(1, share) * width), BAR);
}

function parse(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
