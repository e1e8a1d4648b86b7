// How the page shows strings of other people, times and sizes.

// Characters that reorder text are shown as escapes, so that a name cannot look like another one. Those that join or divide letters are parts of words and emoji.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** @param {unknown} text */
export const plain = (text) => String(text ?? "").replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** @param {{content?: {text?: string}[]} | undefined} message */
export const textOf = (message) => (message?.content ?? []).map((p) => p.text ?? "").join("");

/** @param {number} ms */
export function span(ms) {
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

// took formats a duration, with one digit more than span for short ones.
/** @param {number | undefined} ms */
export const took = (ms) => (ms === undefined ? "–" : ms < 1000 ? `${ms} ms` : ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : span(ms));

/** @param {number | null | undefined} ms @param {number} now */
export const ago = (ms, now) => (ms ? `${span(Math.max(0, now - ms))} ago` : "never");

/** @param {number} ms */
export const clock = (ms) => new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

/** @param {number} ms */
export const day = (ms) => new Date(ms).toLocaleDateString([], { dateStyle: "medium" });

/** @param {number | undefined} ms */
export const time = (ms) => new Date(ms ?? NaN).toLocaleTimeString();

/** @param {number} ms */
export const moment = (ms) => new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });

// inZone formats a moment in the time zone of a job, or in the zone of the browser if the browser does not have that zone.
/** @param {number} ms @param {string} [timeZone] */
export function inZone(ms, timeZone) {
  /** @type {Intl.DateTimeFormatOptions} */ const form = { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", ...(ms % 60000 ? { second: "2-digit" } : {}) };
  try { return new Date(ms).toLocaleString([], { ...form, timeZone }); } catch { return new Date(ms).toLocaleString([], form); }
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const forms = new Map(); // one formatter for each zone, because making one costs more than using it

// near formats a moment in the zone of a job: Mon 8 Mar 09:00, with the year if that differs from the present one.
/** @param {number} ms @param {string | undefined} timeZone @param {number} now */
export function near(ms, timeZone, now) {
  const year = new Date(ms).getFullYear() !== new Date(now).getFullYear(), name = `${timeZone} ${year}`;
  let format = forms.get(name);
  if (!format) {
    /** @type {Intl.DateTimeFormatOptions} */ const form = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", ...(year ? { year: "numeric" } : {}) };
    try { format = new Intl.DateTimeFormat([], { ...form, timeZone }); } catch { format = new Intl.DateTimeFormat([], form); }
    forms.set(name, format);
  }
  return format.format(ms);
}

// stamp formats a moment so that a person can read it and the gateway can parse it: 2027-03-02T09:00:00+01:00.
/** @param {number} ms @param {string} [timeZone] */
export function stamp(ms, timeZone) {
  /** @type {Intl.DateTimeFormatOptions} */ const form = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "longOffset" };
  let format;
  try { format = new Intl.DateTimeFormat("en", { ...form, timeZone }); } catch { format = new Intl.DateTimeFormat("en", form); }
  const p = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]));
  return `${p.year}-${p.month}-${p.day}T${p.hour}:${p.minute}:${p.second}${p.timeZoneName.replace("GMT", "") || "Z"}`;
}

/** @param {number | null | undefined} ms @param {number} now */
export function when(ms, now) {
  if (!ms) return "–";
  const left = ms - now;
  return left > 0 && left < 86400000 ? `${clock(ms)}, in ${span(left)}` : clock(ms);
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}
