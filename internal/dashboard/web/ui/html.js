// The parts of Preact that every module needs.

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
export { computed, effect, signal, useSignal, useSignalEffect } from "../vendor/signals.js";

export const html = htm.bind(h);
