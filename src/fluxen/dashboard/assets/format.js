// Numbers, sizes and times for people, and elements. Text only ever enters the page as text: never as markup.

const UNITS = ["B", "KB", "MB", "GB", "TB"];

export function count(value) {
  if (value == null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return trim(value / 1e9) + " G";
  if (size >= 1e6) return trim(value / 1e6) + " M";
  if (size >= 1e4) return trim(value / 1e3) + " k";
  return size >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : trim(value);
}

function trim(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function bytes(value) {
  if (value == null || !isFinite(value)) return "–";
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit < UNITS.length - 1; unit++) value /= 1024;
  return (unit && Math.abs(value) < 100 ? value.toFixed(1) : Math.round(value)) + " " + UNITS[unit];
}

export function seconds(value) {
  if (value == null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1) return (value * 1e3).toFixed(size < 0.01 ? 1 : 0) + " ms";
  if (size < 120) return value.toFixed(size < 10 ? 2 : 1) + " s";
  if (size < 7200) return (value / 60).toFixed(1) + " min";
  if (size < 172800) return (value / 3600).toFixed(1) + " h";
  return (value / 86400).toFixed(1) + " d";
}

export function percent(value) {
  return isFinite(value) ? Math.round(100 * value) + " %" : "–";
}

const two = (number) => String(number).padStart(2, "0");

/** Wall-clock seconds as local time. */
export function clock(at, withDay = false) {
  const when = new Date(at * 1e3);
  const time = `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
  return withDay ? `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${time}` : time;
}

/** A watermark, microseconds since 1970, as UTC. */
export function mark(micros) {
  if (micros == null) return "none yet";
  const when = new Date(micros / 1e3);
  return isNaN(when) ? "none yet" : when.toISOString().slice(0, 19).replace("T", " ");
}

/** An element: attributes and listeners by name, children as nodes or text. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child != null));
}

/** Puts text where it differs: a page that shows the same is left alone, and so is what somebody has selected in it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A row of buttons of which one is pressed. */
export function choice(box, options, chosen, pick) {
  const key = JSON.stringify(options);
  if (box.dataset.options !== key) {
    box.dataset.options = key;
    fill(box, options.map(([value, label]) => h("button", { type: "button", "data-value": value, onclick: () => pick(value) }, label)));
  }
  for (const button of box.children) button.setAttribute("aria-pressed", String(button.dataset.value === String(chosen)));
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
