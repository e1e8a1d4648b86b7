// The parts that pages share: state marks, actions, tables, dialogs.

import { fault, live } from "../store.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { plain } from "./text.js";

/** @type {Record<string, string>} */
export const SHAPES = { ok: "●", running: "◐", waiting: "○", retrying: "↻", error: "✕", skipped: "–", missed: "◇", cancelled: "■", interrupted: "◌", paused: "‖", planned: "◦", warn: "▲", changed: "┆" };
/** @type {Record<string, string>} */
const COLOURS = { retrying: "warn", missed: "warn", cancelled: "idle", interrupted: "warn", skipped: "idle", paused: "idle", planned: "idle", waiting: "idle", changed: "idle" };
/** @param {string} kind */
export const colourOf = (kind) => COLOURS[kind] ?? kind;

// Mark shows a state by a shape and a word; the colour adds nothing to them.
/** @param {{kind: string, children?: any}} props */
export function Mark({ kind, children }) {
  return html`<span class="mark"><span class=${`shape ${colourOf(kind)}`} aria-hidden="true">${SHAPES[kind]}</span> ${children}</span>`;
}

// Act is a button for a call. While the gateway does not answer, the button does nothing and shows why. It is not disabled, because it would lose the focus.
/** @param {{run: () => unknown, children?: any, [attribute: string]: any}} props */
export function Act({ run, children, ...rest }) {
  const [busy, setBusy] = useState(false);
  const off = !live.value || busy;
  const click = async () => {
    if (off) return;
    setBusy(true);
    fault.value = "";
    try { await run(); } catch (e) { fault.value = e.message; } finally { setBusy(false); }
  };
  return html`<button type="button" ...${rest} onClick=${click} aria-disabled=${off ? "true" : undefined}
    title=${live.value ? rest.title : "not possible while the gateway does not answer"}>${children}</button>`;
}

// Menu has further actions of a row. Escape, a choice or a click elsewhere closes it; the focus returns to the button that opens it.
/** @param {{label: string, children?: any}} props */
export function Menu({ label, children }) {
  const box = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const shut = () => { if (box.current) { box.current.open = false; box.current.querySelector("summary")?.focus(); } };
  const key = (/** @type {KeyboardEvent} */ e) => { if (e.key === "Escape" && box.current?.open) { e.preventDefault(); shut(); } };
  const left = (/** @type {FocusEvent} */ e) => { if (box.current && !box.current.contains(/** @type {Node | null} */ (e.relatedTarget))) box.current.open = false; };
  return html`<details class="menu" ref=${box} onKeyDown=${key} onFocusOut=${left}><summary aria-label=${label}>⋯</summary><div onClick=${shut}>${children}</div></details>`;
}

// Table is an HTML table. On a narrow screen each row is a block with the heading of each column beside its value.
/** @param {{label: string, heads: string[], rows: page.Row[], empty: any}} props */
export function Table({ label, heads, rows, empty }) {
  const acting = rows.some((r) => r.acts !== undefined);
  return html`<table class="rows" aria-label=${label}>
    <thead><tr>${heads.map((h) => (h ? html`<th scope="col">${h}</th>` : html`<td></td>`))}${acting && heads.at(-1) && html`<td></td>`}</tr></thead>
    <tbody>${rows.map(({ id, cells, acts, hit }) => html`<tr key=${id} class=${hit ? "hit" : undefined} tabindex=${hit ? -1 : undefined}>
      ${cells.map((c, i) => html`<td data-head=${heads[i]}><div>${c}</div></td>`)}
      ${acting && html`<td class="acts">${acts}</td>`}</tr>`)}
      ${rows.length === 0 && html`<tr><td class="empty" colspan=${heads.length}>${empty}</td></tr>`}</tbody></table>`;
}

// Dialog is modal; Escape calls onClose. The focus returns to where it was.
/** @param {{title: string, onClose: () => void, children?: any}} props */
export function Dialog({ title, onClose, children }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const dialog = box.current, from = /** @type {HTMLElement | null} */ (document.activeElement);
    dialog?.showModal();
    return () => { dialog?.close(); from?.focus(); }; // the browser does not return the focus from a removed dialog
  }, []);
  return html`<dialog ref=${box} class="card" aria-labelledby="dialog-title" onCancel=${(/** @type {Event} */ e) => { e.preventDefault(); onClose(); }}>
    <h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

// Loading shows what a page is loading, and what has failed.
/** @param {{of: import("../store.js").Resource<any>, what: string}} props */
export function Loading({ of, what }) {
  if (of.fault.value) return html`<p class="fault" role="alert">${plain(of.fault.value)}</p>`;
  return of.data.value === undefined ? html`<p class="quiet">${live.value ? `Reading ${what} …` : `The page reads ${what} when the gateway answers.`}</p>` : null;
}

// useHeldOrder keeps the order of a list while the pointer or the focus is in it, so that a row does not move before a click.
// It returns the rows to show, up to a limit, the ref of the container, whether the order is held, and how many rows would move.
/** @template T @param {T[]} rows @param {(row: T) => string} id */
export function useHeldOrder(rows, id, most = Infinity) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), order = useRef(/** @type {string[]} */ ([]));
  const [, redraw] = useState(0);
  const held = () => Boolean(box.current && (box.current.matches(":hover") || box.current.contains(document.activeElement)));
  const wanted = rows.map(id).slice(0, most);
  if (!held()) order.current = wanted;
  const known = new Map(rows.map((r) => [id(r), r])), kept = order.current.filter((k) => known.has(k)), there = new Set(kept);
  const shown = [...kept, ...wanted.filter((k) => !there.has(k))].slice(0, most);
  order.current = shown;
  const moved = shown.filter((k, i) => k !== wanted[i]).length;
  const sort = () => { order.current = wanted; redraw((n) => n + 1); };
  return { shown: shown.flatMap((k) => known.get(k) ?? []), box, held, moved, sort };
}
