// A live update never loses the focus: when the focused element is removed, the focus moves to the link of the row at the same place, else to a heading.

// keepFocus watches the elements below main until the returned function is called. After a change of the address, the page sets the focus itself.
/** @param {HTMLElement} main */
export function keepFocus(main) {
  /** @type {{node: HTMLElement, rows: HTMLTableSectionElement | null, row: number, section: HTMLElement | null, page: string} | null} */
  let last = null; // the focused element, with its place
  const came = (/** @type {FocusEvent} */ e) => {
    const node = /** @type {HTMLElement} */ (e.target), rows = node.closest("tbody");
    last = { node, rows, row: rows ? [...rows.rows].findIndex((r) => r.contains(node)) : -1, section: node.closest("section"), page: location.hash };
  };
  const went = () => queueMicrotask(() => { if (last?.node.isConnected && last.node !== document.activeElement) last = null; }); // the person has moved the focus
  const lost = new MutationObserver(() => {
    if (!last || last.node.isConnected || document.activeElement !== document.body) return;
    const { rows, row, section, page } = last;
    last = null;
    if (page !== location.hash) return;
    const near = rows?.isConnected && rows.rows[Math.min(row, rows.rows.length - 1)]?.querySelector("a, button");
    const to = /** @type {HTMLElement | null} */ (near || main.querySelector("#undo") || (section?.isConnected && section.querySelector("h2")) || main.querySelector("h1"));
    if (to?.matches("h1, h2")) to.tabIndex = -1;
    to?.focus();
  });
  main.addEventListener("focusin", came);
  main.addEventListener("focusout", went);
  lost.observe(main, { childList: true, subtree: true });
  return () => { main.removeEventListener("focusin", came); main.removeEventListener("focusout", went); lost.disconnect(); };
}
