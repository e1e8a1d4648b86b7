// A list of checks, one line each: "ok NAME" or "FAIL NAME: why". The process ends with 1 when one failed or none was made.
let failed = 0;
let made = 0;

export function check(name, good, why = "") {
  made++;
  if (good) {
    console.log(`ok ${name}`);
    return;
  }
  failed++;
  console.log(`FAIL ${name}: ${typeof why === "string" ? why : JSON.stringify(why)}`);
}

export function end() {
  console.log(`${made} checks, ${failed} failed`);
  process.exit(failed > 0 || made === 0 ? 1 : 0);
}

// within fails a promise that takes too long, and says what was waited for.
export function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, no) => {
    timer = setTimeout(() => no(new Error(`not within ${ms} ms: ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
