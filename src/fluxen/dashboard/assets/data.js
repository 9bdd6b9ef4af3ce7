// What the page knows: fetched from where it came from, and from nowhere else.

export class Query {
  constructor(id) {
    this.id = id;
    this.now = null;
    this.series = null;
    this.events = [];
    this.loaded = 0; // when the series was last read as a whole
    this.changes = 0;
  }

  async get(what, asked = {}) {
    return ask(`api/q/${this.id}/${what}?${new URLSearchParams(asked)}`);
  }

  /** Bring everything up to date; whether anything changed. */
  async refresh() {
    const now = await this.get("now");
    const before = this.now?.epoch?.last, state = this.now?.state;
    this.now = now;
    if (now.epoch == null) return state !== now.state;
    if (this.series != null && before === now.epoch.last) return state !== now.state;
    // the log grows coarser with age: what was added piece by piece is read anew from time to time
    const whole = this.series == null || now.epoch.last < before || this.series.last.length > 6000 || Date.now() - this.loaded > 300e3;
    const [series, events] = await Promise.all([
      this.get("series", { after: whole ? -1 : this.series.last.at(-1) ?? -1 }),
      this.get("events", { after: whole ? -1 : this.events.at(-1)?.epoch ?? -1 }),
    ]);
    if (whole) [this.series, this.events, this.loaded] = [series, events, Date.now()];
    else {
      append(this.series, series);
      this.addEvents(events);
    }
    this.changes++;
    return true;
  }

  addEvents(fresh) {
    if (fresh.length === 0) return;
    const key = (event) => `${event.stage}/${event.id}/${event.when}`;
    const known = new Set(fresh.map(key));
    const since = fresh[0].epoch;
    // a refusal that repeats is told again with a higher count, under the same id
    this.events = this.events.filter((event) => event.epoch < since && !(event.outcome === "refused" && known.has(key(event))));
    this.events.push(...fresh);
  }

  /** Wall-clock time of an epoch, by the series. */
  at(epoch) {
    const { last, at } = this.series;
    let low = 0, high = last.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (last[middle] < epoch) low = middle + 1;
      else high = middle;
    }
    return at[low];
  }
}

/** Add the rows of `fresh` to the columns of `known`; both have a column for every row, but by name where not all samples have it. */
export function append(known, fresh, had = known.last.length, more = fresh.last.length) {
  for (const [name, value] of Object.entries(fresh)) {
    if (!Array.isArray(value)) appendNamed((known[name] ??= {}), value, had, more);
    else if (value.length && known[name]?.length && typeof value[0] === "object" && !("epoch" in value[0]))
      value.forEach((one, number) => append(known[name][number], one, had, more));
    else (known[name] ??= []).push(...value);
  }
}

/** The same where a name may be missing on either side, which is nothing: an epoch without rows has no work at sites. */
function appendNamed(known, fresh, had, more) {
  for (const name of new Set([...Object.keys(known), ...Object.keys(fresh)]))
    (known[name] ??= new Array(had).fill(0)).push(...(fresh[name] ?? new Array(more).fill(0)));
}

export async function ask(address) {
  const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim().slice(0, 200) || answer.statusText);
  return answer.json();
}

/** Index of the first value at or after `wanted` in an ascending column. */
export function from(column, wanted) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The partition group of a key hash, as `fluxen.state.routing.base_group` has it; null if it is no 64-bit number. */
export function groupOf(text, stage) {
  let hash;
  try {
    hash = BigInt(text);
  } catch {
    return null;
  }
  if (hash < -(2n ** 63n) || hash >= 2n ** 63n) return null;
  const own = stage.keys.find(([key]) => key === hash.toString());
  if (own) return own[1];
  return Number((((hash >> 32n) + 2n ** 31n) * BigInt(stage.partitions)) >> 32n);
}
