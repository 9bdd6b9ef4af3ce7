// Charts over time, drawn by uPlot. All of them show the same span: what is dragged over in one is shown in all.

import uPlot from "./vendor/uPlot.esm.js";
import { bytes, clock, css, h } from "./format.js";

const HEIGHT = 190;
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const shared = uPlot.sync("fluxen");

/** A chart of lines, or with `stacked` of areas on top of each other. */
export class Chart {
  constructor({ box, title, note, unit, series, stacked = false, zoomed, marks, height = HEIGHT, dashed = [] }) {
    this.names = series.map((one) => one.name);
    this.stacked = stacked;
    this.unit = unit;
    this.height = height;
    this.zoomed = zoomed;
    this.raw = [[], ...series.map(() => [])];
    this.body = h("div", { class: "plot" });
    this.root = h("figure", { class: "panel chart" }, h("figcaption", {}, h("h2", {}, title), note ? h("span", { class: "quiet" }, note) : null), this.body);
    box.append(this.root);
    this.marks = marks;
    this.plot = new uPlot(this.options(series, dashed), this.empty(), this.body);
    new ResizeObserver(() => this.fit()).observe(this.body);
  }

  empty() {
    return [[], ...this.names.map(() => [])];
  }

  options(series, dashed) {
    const order = series.map((_, number) => number);
    if (this.stacked) order.reverse(); // the largest sum first, so that the others are drawn over it
    this.order = order;
    const axis = { stroke: () => css("--muted"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
    return {
      width: 320,
      height: this.height,
      padding: [8, 16, 0, 0],
      cursor: { sync: { key: shared.key, setSeries: false, scales: ["x", null] }, drag: { x: true, y: false }, points: { size: 6 } },
      legend: { live: true, markers: { width: 0, fill: (plot, number) => plot.series[number].stroke?.(plot, number) ?? "transparent" } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, space: 74, size: 28, values: (_, ticks) => ticks.map((tick, number) => when(tick, ticks, number)) },
        { ...axis, size: 62, incrs: this.unit === bytes ? BINARY : undefined, values: (_, ticks) => ticks.map((tick) => this.unit(tick)) },
      ],
      series: [
        { label: "at", value: (_, at) => (at == null ? "–" : clock(at, true)) },
        ...order.map((number) => ({
          label: series[number].name,
          stroke: () => css(series[number].colour),
          fill: this.stacked ? () => css(series[number].colour) : undefined,
          width: this.stacked ? 0 : 1.5,
          dash: dashed.includes(series[number].name) ? [6, 4] : undefined,
          points: { show: (plot, _, low, high) => !this.stacked && high - low < 40 && !dashed.includes(series[number].name), size: 4 },
          paths: series[number].stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          value: (_, value, __, index) => (index == null ? "–" : this.unit(this.raw[number + 1][index])),
        })),
      ],
      hooks: {
        draw: [(plot) => this.marks && drawMarks(plot, this.marks())],
        setSelect: [(plot) => plot.select.width > 2 && this.zoomed(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))],
      },
    };
  }

  /** Columns: times, then one per series. */
  show(columns, low, high) {
    this.raw = columns;
    const drawn = this.stacked ? sums(columns) : columns;
    this.plot.batch(() => {
      this.plot.setData([drawn[0], ...this.order.map((number) => drawn[number + 1])], false);
      if (drawn[0].length) this.plot.setScale("x", { min: low, max: Math.max(high, low + 1) });
      this.plot.redraw(false, true);
    });
    if (drawn[0].length && this.plot.cursor.idx == null) this.plot.setLegend({ idx: drawn[0].length - 1 });
  }

  fit() {
    const width = Math.floor(this.body.clientWidth);
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  redraw() {
    this.plot.redraw(false, true);
    this.body.querySelectorAll(".u-legend .u-marker").forEach((marker, index) => { marker.style.background = this.plot.series[index].stroke?.() ?? "transparent"; });
  }

  remove() {
    this.plot.destroy();
    this.root.remove();
  }
}

/** Hours and minutes, or also seconds where ticks are close, or the day where it has changed. */
function when(tick, ticks, number) {
  const text = clock(tick, true), step = ticks.length > 1 ? ticks[1] - ticks[0] : 1;
  if (step >= 86400 || (number && clock(ticks[number - 1], true).slice(0, 10) !== text.slice(0, 10))) return text.slice(5, 10);
  return step < 60 ? text.slice(11) : text.slice(11, 16);
}

function sums(columns) {
  const made = [columns[0]];
  for (let column = 1; column < columns.length; column++) {
    const below = made[column - 1];
    made.push(columns[column].map((value, row) => (column === 1 ? 0 : below[row]) + (value ?? 0)));
  }
  return made;
}

/** Ticks at the bottom where something adapted: at most one per pixel, so that ten thousand draw as one does. */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x;
  if (min == null) return;
  ctx.save();
  let before = -Infinity;
  for (const { at, colour } of marks) {
    if (at < min || at > max) continue;
    const x = Math.round(plot.valToPos(at, "x", true));
    if (x - before < 2) continue;
    before = x;
    ctx.fillStyle = colour;
    ctx.fillRect(x, bbox.top + bbox.height - 10 * devicePixelRatio, 2 * devicePixelRatio, 10 * devicePixelRatio);
  }
  ctx.restore();
}
