// The page: fetches what is new once a second while it can be seen, and draws what has changed.

import { Chart } from "./charts.js";
import { ask, from, groupOf, Query } from "./data.js";
import { Drawer } from "./drawer.js";
import { bytes, choice, clock, count, css, fill, h, say, seconds } from "./format.js";
import { List } from "./list.js";
import { PlacementMap } from "./map.js";
import { cards, eventRow, inputs, plans, SITE_COLUMNS, siteRow, slowest } from "./panels.js";

const $ = (id) => document.getElementById(id);
const POLL = 1000, QUERIES = 5000, LATE_LAG = 7 * 86400;
const RANGES = [["300", "5 min"], ["3600", "1 h"], ["0", "all"]];
const EVENT_COLOURS = { move: "--c1", spill: "--disk", replan: "--c5", repartition: "--c3", rescale: "--c7" };
const WORK = { load: "--c7", operator: "--c1", write: "--c2", merge: "--c3", cleanup: "--c4", pack: "--c8", emit: "--c5", wait: "--c6" };

const times = (value) => (value == null ? "–" : `${value.toFixed(1)} ×`);

const state = { query: null, stage: 0, colour: "rows", range: "0", zoom: null, outcome: "all", sort: "site", down: false, drawn: -1 };
const queries = new Map();
let charts = [];

const map = new PlacementMap($("map"), { tip: $("tip"), told: $("map-told"), open: (kind, number) => drawer.open(state.query, state.stage, kind, number) });
const drawer = new Drawer($("drawer"), { failed: noNews });
const sites = new List($("sites"), { height: 26, row: siteRow, label: "Sites", empty: "no site matches", open: (site) => drawer.open(state.query, state.stage, "site", site.site), head: h("div", { class: "site" }, SITE_COLUMNS.map(([name, label, kind]) => h("span", { class: kind ?? "" }, h("button", { type: "button", "data-sort": name, onclick: () => sortBy(name) }, label)))) });
const events = new List($("events"), { height: 44, tall: 86, label: "Adaptations, newest first", empty: "none so far", row: (event) => eventRow(event, state.query?.at(event.epoch)), open: openEvent });

// ---- time shown

function span() {
  const { at } = state.query.series, last = at.at(-1) ?? 1, first = (at[0] ?? 0) - 0.5;
  if (state.zoom) return state.zoom;
  return state.range === "0" ? [first, last] : [Math.max(first, last - Number(state.range)), last];
}

function zoomed(low, high) {
  state.zoom = [low, high];
  draw();
}

// ---- charts

function build() {
  charts.forEach((chart) => chart.remove());
  const box = $("charts"), now = state.query.now, common = { box, zoomed, marks };
  const names = now.query.stages.flatMap((stage, number) => stage.inputs.map((input) => (now.query.stages.length > 1 ? `${number + 1}: ${input.name}` : input.name)));
  const limited = now.stages.some((stage) => stage.limit != null);
  const colours = names.map((name, number) => ({ name, colour: `--c${(number % 8) + 1}` }));
  charts = [
    new Chart({ ...common, title: "Rows per second", note: "marks: adaptations", unit: count, series: [{ name: "while epochs run", colour: "--c1" }, { name: "arriving", colour: "--c6" }] }),
    new Chart({ ...common, title: "Results per second", unit: count, series: [{ name: "while epochs run", colour: "--c2" }] }),
    new Chart({ ...common, title: "Latency", note: "row to result; the longest epoch", unit: seconds, series: [{ name: "mean latency", colour: "--c1" }, { name: "longest epoch", colour: "--c5" }] }),
    new Chart({ ...common, title: "Epoch time by phase", note: "mean per epoch", unit: seconds, stacked: true, series: [{ name: "plan", colour: "--c8" }, { name: "sites at work", colour: "--c1" }, { name: "source, shuffle, sink", colour: "--c6" }, { name: "adapt and commit", colour: "--c2" }] }),
    new Chart({ ...common, title: "What sites do", note: "all sites, per epoch", unit: seconds, stacked: true, series: Object.entries(WORK).filter(([name]) => name !== "wait").map(([name, colour]) => ({ name, colour })) }),
    new Chart({ ...common, title: "Balance", note: "busiest site's work, times the mean", unit: times, series: now.query.stages.map((stage, number) => ({ name: stage.name, colour: `--c${(number % 8) + 1}` })) }),
    new Chart({ ...common, title: "State", note: limited ? "in memory, its limit, and on disk" : "in memory and on disk", unit: bytes, dashed: ["limit"], series: [{ name: "memory", colour: "--c1" }, { name: "on disk", colour: "--disk" }, ...(limited ? [{ name: "limit", colour: "--bad" }] : [])] }),
    new Chart({ ...common, title: "Watermarks", note: lagging() ? "behind the wall clock" : "event time gone by since the first (a replay)", unit: seconds, series: colours }),
    new Chart({ ...common, title: "Late rows", note: "per epoch and input", unit: count, series: colours }),
  ];
  state.lagging = lagging();
}

/** Whether event times follow the clock: a replay's watermark is shown as it advances instead. */
function lagging() {
  const { now } = state.query, marks = now.stages.flatMap((stage) => stage.watermarks).filter((mark) => mark != null);
  return marks.length > 0 && Math.abs(now.epoch.at - Math.max(...marks) / 1e6) < LATE_LAG;
}

function marks() {
  const { query } = state;
  return query.events.filter((event) => event.outcome === "done").map((event) => ({ at: query.at(event.epoch), colour: css(EVENT_COLOURS[event.kind] ?? "--c4") }));
}

function drawCharts() {
  const { series } = state.query, [low, high] = span(), { at, epochs } = series;
  const per = (column) => column.map((value, row) => value / epochs[row]);
  const gap = at.map((end, row) => (row ? end - at[row - 1] : 0));
  const phase = (name) => series.phases[name] ?? at.map(() => 0);
  const work = at.map((_, row) => series.stages.reduce((total, stage) => total + stage.slowest[row], 0));
  const plan = phase("plan"), commit = phase("commit");
  const atWork = work.map((value, row) => Math.min(value, Math.max(0, series.lasted[row] - plan[row] - commit[row])));
  const rest = series.lasted.map((value, row) => Math.max(0, value - plan[row] - commit[row] - atWork[row]));
  const limit = state.query.now.stages.flatMap((stage) => stage.limit ?? []).reduce((total, size) => total + size, 0);
  const sides = series.stages.flatMap((stage) => stage.sides);
  const begun = sides.map((side) => side.watermark.find((mark) => mark != null));
  const rate = (column, over) => column.map((rows, row) => (over[row] > 0 ? rows / over[row] : null));
  const columns = [
    [at, rate(series.rows_in, series.lasted), rate(series.rows_in, gap)],
    [at, rate(series.results, series.lasted)],
    [at, rate(series.waited, series.done), series.worst.map((worst) => worst.seconds)],
    [at, per(plan), per(atWork), per(rest), per(commit)],
    [at, ...Object.keys(WORK).filter((name) => name !== "wait").map((name) => at.map((_, row) => series.stages.reduce((total, stage) => total + (stage.work[name]?.[row] ?? 0), 0) / epochs[row]))],
    [at, ...series.stages.map((stage) => stage.busy.map((busy, row) => (busy > 0 ? (stage.slowest[row] * stage.sites[row]) / busy : null)))],
    [at, series.state_bytes, series.spilled_bytes, ...(limit ? [at.map(() => limit)] : [])],
    [at, ...charts[7].names.map((_, side) => at.map((when, row) => { const mark = sides[side]?.watermark[row]; return mark == null ? null : state.lagging ? when - mark / 1e6 : (mark - begun[side]) / 1e6; }))],
    [at, ...charts[8].names.map((_, side) => (sides[side] ? per(sides[side].late) : at.map(() => null)))],
  ];
  charts.forEach((chart, number) => chart.show(columns[number], low, high));
  // zoomed: a click away from everything
  choice($("range"), RANGES, state.zoom ? "" : state.range, (value) => { state.range = value; state.zoom = null; draw(); });
}

// ---- finding

function found() {
  const text = $("find").value.trim().toLowerCase(), { now } = state.query, stage = now.stages[state.stage];
  if (!text) return null;
  const hit = { sites: new Set(), groups: new Set() };
  const group = /^(?:group|g)\s*(\d+)$/.exec(text), site = /^(?:site|s)\s*(\d+)$/.exec(text), key = /^(?:key|k)\s*(-?\d+)$/.exec(text);
  if (group) hit.groups.add(Number(group[1]));
  else if (site) hit.sites.add(Number(site[1]));
  else if (key) { const number = groupOf(key[1], stage); if (number != null) hit.groups.add(number); }
  else {
    stage.site_columns.host.forEach((host, number) => (host.toLowerCase().includes(text) || stage.site_columns.executor[number]?.toLowerCase().includes(text) || String(number) === text) && hit.sites.add(number));
    if (/^\d+$/.test(text)) hit.groups.add(Number(text));
  }
  return hit;
}

function drawSites() {
  const stage = state.query.now.stages[state.stage], seen = stage.site_columns, hit = map.found;
  const groups = new Array(stage.sites).fill(0), of = new Set([...(hit?.groups ?? [])].map((group) => stage.placement[group]));
  stage.placement.forEach((site) => groups[site]++);
  const busiest = Math.max(1e-9, ...seen.busy), most = Math.max(1, ...seen.state_bytes);
  let shown = groups.map((owned, site) => ({
    site, groups: owned, busy: seen.busy[site] ?? 0, share: (seen.busy[site] ?? 0) / busiest, rows: seen.rows_in[site] ?? 0, results: seen.rows_out[site] ?? 0,
    held: seen.state_bytes[site] ?? 0, part: (seen.state_bytes[site] ?? 0) / most, limit: stage.limit?.[site], spilled: stage.site_spilled[site] ?? 0,
  }));
  if (hit) shown = shown.filter(({ site }) => hit.sites.has(site) || of.has(site));
  shown.sort((a, b) => (a[state.sort] - b[state.sort]) * (state.down ? -1 : 1) || a.site - b.site);
  sites.show(shown);
  for (const button of $("sites").querySelectorAll("[data-sort]")) button.setAttribute("aria-pressed", String(button.dataset.sort === state.sort));
  say($("sites-count"), hit ? `${shown.length} of ${stage.sites}` : `${stage.sites}`);
}

function sortBy(name) {
  [state.down, state.sort] = [state.sort === name ? !state.down : name !== "site", name];
  drawSites();
}

function drawEvents() {
  const text = $("events-find").value.trim().toLowerCase(), words = text ? text.split(/\s+/) : [];
  const all = state.query.events;
  const fits = (event) => {
    if (state.outcome === "done" ? event.outcome !== "done" : state.outcome === "refused" && event.outcome === "done") return false;
    if (!words.length) return true;
    const whole = (event.text ??= `${event.kind} ${event.outcome} ${event.what} ${event.why} ${event.reason} epoch ${event.epoch} stage ${event.stage + 1} ${event.sites.map((site) => `site ${site}`).join(" ")}`.toLowerCase());
    return words.every((word) => whole.includes(word));
  };
  const shown = all.filter(fits).reverse();
  events.show(shown);
  say($("events-count"), shown.length === all.length ? `${all.length}` : `${shown.length} of ${all.length}`);
  choice($("outcome"), [["all", "all"], ["done", "done"], ["refused", "refused"]], state.outcome, (value) => { state.outcome = value; drawEvents(); });
}

function openEvent(event) {
  if (event.stage !== state.stage) { state.stage = event.stage; draw(); }
  if (event.groups.length) drawer.open(state.query, event.stage, "group", event.groups[0]);
  else if (event.sites.length) drawer.open(state.query, event.stage, "site", event.sites[0]);
}

// ---- everything

function draw() {
  const { query } = state, { now } = query;
  say($("state"), now.state);
  $("state").className = `pill ${now.state}`;
  document.title = `${now.name} · fluxen`;
  trouble(now.ended?.error && now.state === "failed" ? `The query has failed: ${now.ended.error}` : "");
  if (!now.epoch || !query.series?.at.length) {
    say($("where"), "waiting for the first epoch");
    return;
  }
  state.stage = Math.min(state.stage, now.stages.length - 1);
  say($("where"), `epoch ${now.epoch.last}, ${clock(now.epoch.at, true)}${now.holder ? `, process ${now.holder.pid} on ${now.holder.host}` : ""}`);
  if (!charts.length) build();
  fill($("cards"), cards(now, query.series));
  drawCharts();
  const [low, high] = span();
  slowest($("slow"), query, low, high);
  inputs($("inputs"), now, (stage, side) => query.series.stages[stage].sides[side]?.late.reduce((total, late) => total + late, 0));
  plans($("plans"), now);
  choice($("stage"), now.query.stages.map((stage, number) => [String(number), stage.name]), String(state.stage), (value) => { state.stage = Number(value); draw(); });
  choice($("colour"), [["rows", "by rows"], ["bytes", "by bytes"]], state.colour, (value) => { state.colour = map.colour = value; draw(); });
  map.colour = state.colour;
  map.found = found();
  map.show({ ...now.stages[state.stage], number: `${query.id}/${state.stage}` });
  legend(now.stages[state.stage]);
  drawSites();
  drawEvents();
  state.drawn = query.changes;
}

function legend(stage) {
  const item = (kind, text) => h("span", {}, h("i", { class: `swatch ${kind}` }), text);
  fill($("legend"), h("span", {}, "0", h("i", { class: "ramp" }), state.colour === "bytes" ? bytes(map.most) : `${count(map.most)} rows`), item("busy", "work, of the busiest site"), stage.limit ? item("held", "memory, of the limit") : null, item("disk", "on disk"), item("moved", "has just moved"));
}

function trouble(text) {
  say($("trouble"), text);
  $("trouble").hidden = !text;
}

function noNews(error) {
  trouble(`No news: ${error.message}. Trying again.`);
  state.drawn = -1; // the next answer is drawn even if it tells nothing new
}

let pending = false;
async function poll() {
  if (pending || document.hidden || !state.query) return;
  pending = true;
  const query = state.query;
  try {
    const changed = await query.refresh();
    if (query !== state.query) return;
    if (changed || state.drawn !== query.changes) {
      draw();
      await drawer.refresh();
    }
  } catch (error) {
    noNews(error);
  } finally {
    pending = false;
  }
}

async function list() {
  try {
    const found = await ask("api/queries"), key = JSON.stringify(found);
    if ($("query").dataset.key !== key) {
      $("query").dataset.key = key;
      fill($("query"), found.map((one) => h("option", { value: one.id }, `${one.name} (${one.state})`)));
    }
    const wanted = Number(/(?:^|[#&])q=(\d+)/.exec(location.hash)?.[1] ?? 0);
    const id = found.some((one) => one.id === wanted) ? wanted : found[0]?.id;
    if (id == null) return say($("where"), "no query is shown here");
    if (state.query?.id !== id) select(id);
    $("query").value = String(id);
  } catch (error) {
    noNews(error);
  }
}

function select(id) {
  if (!queries.has(id)) queries.set(id, new Query(id));
  Object.assign(state, { query: queries.get(id), stage: 0, zoom: null, drawn: -1 });
  charts.forEach((chart) => chart.remove());
  charts = [];
  drawer.what && drawer.close();
  poll();
}

function themed(theme) {
  document.documentElement.dataset.theme = theme;
  map.themed();
  map.draw();
  [...charts, drawer].forEach((one) => one.redraw());
}

const dark = matchMedia("(prefers-color-scheme: dark)");
themed(localStorage.getItem("fluxen-theme") ?? (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => localStorage.getItem("fluxen-theme") ?? themed(dark.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("fluxen-theme", theme);
  themed(theme);
});
$("query").addEventListener("change", () => { location.hash = `q=${$("query").value}`; });
addEventListener("hashchange", list);
$("find").addEventListener("input", () => { if (!state.query?.now?.epoch) return; map.found = found(); map.draw(); drawSites(); });
$("find").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !map.found) return;
  const [group] = map.found.groups, [site] = map.found.sites, stage = state.query.now.stages[state.stage];
  if (group != null && group < stage.placement.length) drawer.open(state.query, state.stage, "group", group);
  else if (site != null && site < stage.sites) drawer.open(state.query, state.stage, "site", site);
});
$("events-find").addEventListener("input", () => state.query?.now?.epoch && drawEvents());
document.addEventListener("visibilitychange", poll);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/input|select|textarea/i.test(document.activeElement?.tagName)) { $("find").focus(); event.preventDefault(); }
});
setInterval(poll, POLL);
setInterval(list, QUERIES);
list();
