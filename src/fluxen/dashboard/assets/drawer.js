// The past of one site or partition group, in a panel at the side.

import { Chart } from "./charts.js";
import { bytes, clock, count, fill, h, seconds } from "./format.js";

export class Drawer {
  constructor(root, { failed }) {
    Object.assign(this, { root, failed });
    this.charts = [];
    this.what = null;
    root.querySelector("#close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => event.key === "Escape" && !root.hidden && this.close());
  }

  async open(query, stage, kind, number) {
    if (this.root.hidden) this.before = document.activeElement;
    this.what = { query, stage, kind, number };
    this.root.hidden = false;
    this.root.querySelector("#drawer-title").textContent = `${kind === "site" ? "Site" : "Partition group"} ${number}${query.now.stages.length > 1 ? `, stage ${stage + 1}` : ""}`;
    this.root.focus();
    await this.refresh().catch(this.failed);
  }

  close() {
    this.root.hidden = true;
    this.what = null;
    this.before?.focus();
  }

  async refresh() {
    const what = this.what;
    if (!what) return;
    const { query, stage, kind, number } = what;
    this.facts();
    const past = await query.get("history", { stage, [kind]: number });
    if (this.what !== what) return; // another one was opened meanwhile
    if (this.built !== what) this.build(kind);
    this.built = what;
    const epochs = past.first.map((first, row) => past.last[row] - first + 1), per = (column) => column.map((value, row) => (value == null ? null : value / epochs[row]));
    const low = past.at[0] ?? 0, high = past.at.at(-1) ?? 1;
    this.charts[0].show([past.at, per(past.rows_in), per(past.rows_out)], low, high);
    this.charts[1].show([past.at, past.bytes, past.spilled], low, high);
    this.charts[2].show(kind === "site" ? [past.at, per(past.busy)] : [past.at, past.site], low, high);
  }

  build(kind) {
    this.charts.forEach((chart) => chart.remove());
    const box = this.root.querySelector("#past"), common = { box, height: 120, zoomed: () => {} };
    this.charts = [
      new Chart({ ...common, title: "Rows per epoch", unit: count, series: [{ name: "in", colour: "--c1" }, { name: "out", colour: "--c2" }] }),
      new Chart({ ...common, title: "Bytes", unit: bytes, series: [{ name: "state", colour: "--c1" }, { name: "on disk", colour: "--disk" }] }),
      kind === "site"
        ? new Chart({ ...common, title: "Busy per epoch", unit: seconds, series: [{ name: "busy", colour: "--c3" }] })
        : new Chart({ ...common, title: "At site", unit: (value) => (Number.isInteger(value) ? String(value) : ""), series: [{ name: "site", colour: "--c3", stepped: true }] }),
    ];
    this.charts.forEach((chart) => chart.fit());
  }

  facts() {
    const { query, stage, kind, number } = this.what, told = query.now.stages[stage], seen = told.site_columns, groups = told.group_columns;
    const facts = kind === "site"
      ? { host: seen.host[number] || "this process", executor: seen.executor[number], groups: told.placement.filter((site) => site === number).length,
          rows: `${count(seen.rows_in[number])} in, ${count(seen.rows_out[number])} out`, state: `${bytes(seen.state_bytes[number])}${told.limit ? ` of ${bytes(told.limit[number])}` : ""}`,
          "on disk": bytes(told.site_spilled[number] ?? 0), late: count(seen.late[number]), waiting: count(seen.waiting_rows[number]), busy: seconds(seen.busy[number]),
          "of that": ["load", "operator", "write", "merge", "cleanup", "pack"].filter((name) => seen[name]?.[number]).map((name) => `${name} ${seconds(seen[name][number])}`).join(", ") }
      : { site: told.placement[number], key: told.keys.find(([, group]) => group === number)?.[0], rows: `${count(groups.rows_in[number] ?? 0)} in, ${count(groups.rows_out[number] ?? 0)} out`,
          state: bytes(groups.bytes[number] ?? 0), "on disk": told.group_spilled[number] ? bytes(told.group_spilled[number]) : null, move: told.moving.includes(number) ? "under way" : null };
    fill(this.root.querySelector("#facts"), Object.entries(facts).filter(([, value]) => value != null && value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
    const mine = query.events.filter((event) => event.stage === stage && (kind === "site" ? event.sites : event.groups).includes(number)).slice(-30).reverse();
    fill(this.root.querySelector("#mine"), mine.length
      ? mine.map((event) => h("li", {}, h("span", { class: "quiet" }, `${clock(query.at(event.epoch), true)}, epoch ${event.epoch} `), `${event.outcome === "done" ? "" : `${event.outcome}: `}${event.what}: ${event.why}${event.reason ? ` – ${event.reason}` : ""}`))
      : [h("li", { class: "quiet" }, "none that name it")]);
  }

  redraw() {
    this.charts.forEach((chart) => chart.redraw());
  }
}
