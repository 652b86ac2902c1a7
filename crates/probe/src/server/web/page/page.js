import { drawCharts } from "./chart.js";
import { LANGUAGES, LIMITS, TEXTS } from "./texts.js";

const PROTOCOL = "net.measurementlab.ndt.v7";
const WAYS = ["download", "upload"];
/** Time for which the sending end sends, and times after which this end gives up, all in ms. */
const TEST = 10_000;
const TOO_LONG = 15_000;
const NO_ANSWER = 5_000;
const IDLE_PROBES = 12;
/** Time between two requests of the round trips, in ms, and how many may be under way. */
const PROBE_EVERY = 100;
const MAX_PROBES = 5;
/** Begin of a load whose round trips do not count, in ms. */
const RAMP = 2_000;
/** Sizes of the messages of an upload in bytes. */
const SIZES = [1 << 13, 1 << 20];

const $ = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Asks this server, which must begin to answer soon. */
function ask(path, options) {
  const late = sleep(NO_ANSWER).then(() => Promise.reject(new Failure("errorGone")));
  return Promise.race([fetch(path, { cache: "no-store", ...options }), late]);
}

let language = navigator.language.toLowerCase().startsWith("de") ? 1 : 0;
/** What is shown, so that it can be shown again in the other language. */
let shown = fresh();
/** Ends the test that runs. */
let running = null;

function fresh() {
  return { state: "", idle: [], down: true, download: way(), upload: way(), error: null, shared: false };
}

function way() {
  return { rate: 0, points: [], probes: [], id: null, tcp: null, result: null, known: false };
}

/* Texts and figures. */

function say(key, values = {}) {
  return fill(TEXTS[key], values);
}

function fill(forms, values = {}) {
  return forms[language].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

function number(value, digits = 4) {
  return value.toLocaleString(LANGUAGES[language], { maximumSignificantDigits: digits, useGrouping: false });
}

function scaled(value, base, units, digits) {
  let step = 0;
  while (value >= base * 0.99995 && step < units.length - 1) {
    value /= base;
    step += 1;
  }
  return `${number(value, digits)}\u00a0${units[step]}`;
}

const rateText = (rate, digits) => scaled(rate, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], digits);
const bytesText = (bytes) => scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const timeText = (ms, digits) => scaled(ms * 1000, 1000, ["µs", "ms", "s"], digits);

function quantile(times, share) {
  const sorted = [...times].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/** Round trips per minute: 60 000 ms by the mean of the best 95 % (draft-ietf-ippm-responsiveness). */
function roundTripsPerMinute(times) {
  const best = [...times].sort((one, other) => one - other).slice(0, Math.max(1, Math.floor(times.length * 0.95)));
  return (60_000 * best.length) / best.reduce((sum, time) => sum + time, 0);
}

/* Round trips. */

const probes = { purpose: null, times: [], count: 0 };

function watchProbes() {
  new PerformanceObserver((list) => {
    for (const { name, requestStart, responseStart } of list.getEntries()) {
      const parts = /\/nq\/small\?(\w+)-\d+$/.exec(name);
      if (parts && responseStart > 0) probes.times.push({ purpose: parts[1], at: requestStart, ms: responseStart - requestStart });
    }
    performance.clearResourceTimings();
  }).observe({ type: "resource" });
}

async function probe(purpose, signal) {
  probes.count += 1;
  const answer = await ask(`/nq/small?${purpose}-${probes.count}`, { signal });
  if (!answer.ok) throw new Failure(answer.status === 503 ? "errorBusy" : "errorLimit", { seconds: answer.headers.get("Retry-After") ?? 10 });
  await answer.arrayBuffer();
}

function timesOf(purpose, from = 0) {
  const times = probes.times.filter((one) => one.purpose === purpose && one.at >= from);
  return times.map(({ at, ms }) => [at, ms]);
}

async function measureIdle(signal) {
  // The first one may open the connection.
  for (let index = 0; index <= IDLE_PROBES; index += 1) {
    await probe(index ? "idle" : "first", signal).catch((error) => {
      throw error instanceof Failure ? error : new Failure("errorGone");
    });
    await sleep(50);
    show({ idle: timesOf("idle").map(([, ms]) => ms), progress: (0.08 * index) / IDLE_PROBES });
  }
}

/** Sends requests until the load ends. */
async function probeUnderLoad(purpose, signal) {
  let pending = 0;
  while (!signal.aborted) {
    if (pending < MAX_PROBES) {
      pending += 1;
      probe(purpose, signal).catch(() => {}).finally(() => (pending -= 1));
    }
    await sleep(PROBE_EVERY);
  }
}

/* The load. */

class Failure extends Error {
  constructor(key, values) {
    super(key);
    this.values = values;
  }
}

/** Says why there is no WebSocket: a browser does not tell the page. */
async function refusal() {
  try {
    const answer = await ask("/__down?bytes=20000");
    await answer.arrayBuffer();
    const seconds = answer.headers.get("Retry-After") ?? 10;
    if (answer.status === 503) return new Failure("errorBusy", { seconds });
    return new Failure(answer.status === 429 ? "errorLimit" : "errorSocket");
  } catch {
    return new Failure("errorGone");
  }
}

/** Runs one direction, and returns when its connection has closed. */
async function runWay(name, signal) {
  const url = new URL(`/ndt/v7/${name}`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url, PROTOCOL);
  socket.binaryType = "arraybuffer";
  const load = { bytes: 0, began: 0, ended: 0, arrived: [0, 0] };
  const one = shown[name];
  socket.onmessage = ({ data }) => {
    load.ended = performance.now();
    if (typeof data === "string") takeMessage(name, load, JSON.parse(data));
    else load.bytes += data.byteLength;
  };
  const stop = () => socket.close();
  signal.addEventListener("abort", stop);
  const late = setTimeout(stop, TOO_LONG);
  const closed = new Promise((resolve) => (socket.onclose = socket.onerror = resolve));
  const opened = await Promise.race([closed.then(() => false), new Promise((resolve) => (socket.onopen = () => resolve(true)))]);
  if (!opened) throw signal.aborted ? signal.reason : await refusal();
  load.began = load.ended = performance.now();
  const end = new AbortController();
  const ticker = setInterval(() => tick(name, load), 250);
  probeUnderLoad(name, end.signal);
  if (name === "upload") sendUpload(socket, load.began);
  await closed;
  end.abort();
  clearTimeout(late);
  clearInterval(ticker);
  signal.removeEventListener("abort", stop);
  signal.throwIfAborted();
  const lasted = load.ended - load.began;
  if (!one.id || lasted < TEST * 0.8) throw new Failure("errorBroken");
  if (name === "download") one.rate = (8000 * load.bytes) / lasted;
  one.bytes = name === "download" ? load.bytes : load.arrived[1];
  // What was under way at the end is not of the loaded path alone.
  const within = timesOf(name).filter(([at, ms]) => at >= load.began + RAMP && at + ms <= load.ended);
  one.probes = within.map(([at, ms]) => [(at - load.began) / 1000, ms]);
}

/** Takes what the server counts: it alone knows what of an upload has arrived. */
function takeMessage(name, load, { AppInfo: app, ConnectionInfo: connection, TCPInfo: tcp }) {
  const one = shown[name];
  if (connection?.UUID) one.id = connection.UUID;
  if (tcp) one.tcp = tcp;
  if (!app || name === "download" || app.ElapsedTime <= load.arrived[0]) return;
  const [before, bytes] = load.arrived;
  const rate = (8e6 * (app.NumBytes - bytes)) / (app.ElapsedTime - before);
  load.arrived = [app.ElapsedTime, app.NumBytes];
  if (app.ElapsedTime < 100_000) return;
  one.points.push([app.ElapsedTime / 1e6, rate]);
  one.rate = (8e6 * app.NumBytes) / app.ElapsedTime;
  one.now = rate;
}

/** Notes the rate of a quarter of a second, and shows it. */
function tick(name, load) {
  const one = shown[name];
  const now = performance.now();
  const at = now - load.began;
  const [before, bytes] = load.arrived;
  if (name === "download" && at - before > 200) {
    one.now = (8000 * (load.bytes - bytes)) / (at - before);
    load.arrived = [at, load.bytes];
    one.points.push([at / 1000, one.now]);
  }
  one.probes = timesOf(name).map(([from, ms]) => [(from - load.began) / 1000, ms]);
  show({ progress: 0.08 + 0.46 * (WAYS.indexOf(name) + Math.min(1, at / TEST)) });
}

function sendUpload(socket, began) {
  const data = new Uint8Array(SIZES[1]);
  // So many random bytes are given at once.
  for (let at = 0; at < data.length; at += 65_536) crypto.getRandomValues(data.subarray(at, at + 65_536));
  let [size] = SIZES;
  let sent = 0;
  const next = () => {
    if (socket.readyState !== WebSocket.OPEN) return;
    if (performance.now() - began >= TEST) {
      socket.close();
      return;
    }
    while (socket.bufferedAmount < 7 * size) {
      if (size < SIZES[1] && size * 16 <= sent) size *= 2;
      socket.send(data.subarray(0, size));
      sent += size;
    }
    setTimeout(next);
  };
  next();
}

/* The verdict. */

async function fetchResult(id, tries) {
  for (let count = 0; count < tries; count += 1) {
    if (count) await sleep(300);
    const answer = await ask(`/result/${id}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (answer?.ok) return answer.json();
  }
  return null;
}

async function judge() {
  for (const name of WAYS) {
    const one = shown[name];
    one.result = await fetchResult(one.id, 12);
    one.known = true;
    if (one.result && name === "upload") Object.assign(one, { rate: one.result.rate, bytes: one.result.bytes });
  }
}

async function run() {
  running = new AbortController();
  const { signal } = running;
  history.replaceState(null, "", location.pathname);
  probes.times = [];
  shown = fresh();
  try {
    show({ state: "measuringIdle", progress: 0 });
    await measureIdle(signal);
    for (const name of WAYS) {
      signal.throwIfAborted();
      show({ state: name === "download" ? "measuringDownload" : "measuringUpload" });
      await runWay(name, signal);
    }
    show({ state: "judging", progress: 1 });
    await judge();
    signal.throwIfAborted();
    history.replaceState(null, "", `#${WAYS.map((name) => shown[name].id).join(".")}`);
    running = null;
    show({ state: "done" });
  } catch (error) {
    const isStop = signal.aborted;
    running = null;
    show({ state: isStop ? "stopped" : "", error: isStop ? null : error instanceof Failure ? error : new Failure("errorBroken") });
  }
}

/** Shows the result that the address names. */
async function showShared() {
  const ids = /^#([0-9a-f]{32})\.([0-9a-f]{32})$/.exec(location.hash)?.slice(1);
  if (!ids || running) return;
  shown = { ...fresh(), shared: true };
  for (const [index, name] of WAYS.entries()) {
    const result = await fetchResult(ids[index], 1);
    Object.assign(shown[name], { id: ids[index], result, known: true, rate: result?.rate ?? 0, bytes: result?.bytes });
  }
  const isThere = WAYS.some((name) => shown[name].result);
  show(isThere ? { state: "shown" } : { error: new Failure("errorResult"), shared: false });
}

/* What is seen. */

function show(change = {}) {
  Object.assign(shown, change);
  const { state, error } = shown;
  const isOver = state === "done" || state === "shown";
  const start = $("start");
  start.textContent = say(running ? "stop" : state || error ? "again" : "start");
  start.classList.toggle("stop", Boolean(running));
  $("cost").hidden = Boolean(running);
  document.querySelector(".course").hidden = !state;
  $("progress").hidden = !running;
  $("progress").value = shown.progress ?? 0;
  setText($("status"), statusText());
  setText($("error"), error ? fill(TEXTS[error.message], error.values) : "");
  $("figures").hidden = !isOver && !running;
  showFigures();
  $("verdicts").replaceChildren(...(isOver ? WAYS.map(verdictSection) : []));
  $("share").hidden = !isOver;
  if (isOver) showLink();
}

/** A live region speaks of each change. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function statusText() {
  const { state } = shown;
  if (!state) return "";
  const date = shown.download.result?.started ?? shown.upload.result?.started;
  return say(state, {
    download: rateText(shown.download.rate),
    upload: rateText(shown.upload.rate),
    date: date && new Date(date).toLocaleString(LANGUAGES[language]),
  });
}

function showFigures() {
  for (const name of WAYS) {
    const one = shown[name];
    const isLive = running && one.points.length && shown.state !== "judging" && one.bytes === undefined;
    const rate = isLive ? one.now : one.rate;
    $(name).textContent = rate ? rateText(rate, isLive ? 3 : 4) : "–";
    $(name).classList.toggle("shown", rate > 0);
    $(`${name}-delay`).textContent = delayText(one);
  }
  const idle = shown.shared ? (shown.download.result?.rtt.idle?.median ?? 0) * 1000 : quantile(shown.idle, 0.5);
  $("idle").textContent = idle ? timeText(idle, 3) : "–";
  $("charts").hidden = shown.shared;
  if (shown.shared || $("figures").hidden) return;
  const both = (form, key) => WAYS.map((way) => ({ way, form, name: say(way), points: shown[way][key] }));
  drawCharts($("charts"), both("line", "points"), both("dot", "probes"), idle, {
    rate: say("chartRate"),
    delay: say("chartDelay"),
    formatRate: (rate) => rateText(rate, 3),
    formatTime: (ms) => timeText(ms, 3),
  });
}

function delayText(one) {
  const loaded = one.result?.rtt.loaded?.median;
  if (shown.shared) return loaded ? say("byServer", { time: timeText(loaded * 1000, 3) }) : "";
  const times = one.probes.filter(([at]) => at * 1000 >= RAMP).map(([, ms]) => ms);
  if (times.length < 5) return "";
  return say("underLoad", { time: timeText(quantile(times, 0.5), 3), rpm: number(roundTripsPerMinute(times), 3) });
}

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...[content].flat());
  return made;
}

function verdictSection(name) {
  const one = shown[name];
  const { limit } = one.result ?? {};
  const values = { way: say(name), rate: rateText(one.rate) };
  if (!limit) return element("section", element("h2", say("notJudged", { way: say(name) })));
  const { limit: cause, lifts } = LIMITS[limit.kind] ?? LIMITS.unknown;
  const key = limit.kind === "unknown" ? "notShown" : "limitedBy";
  const others = (limit.candidates ?? []).filter(({ kind }) => kind !== limit.kind && LIMITS[kind]);
  const facts = [
    ["evidence", element("span", limit.sentence, { lang: "en" })],
    ...(others.length ? [["perhaps", others.map(({ kind }) => fill(LIMITS[kind].limit)).join(", ")]] : []),
    ["lifts", fill(lifts)],
    ["who", say(whoCan(name, limit.at))],
  ];
  const list = facts.flatMap(([about, what]) => [element("dt", say(about)), element("dd", what)]);
  return element("section", [
    element("h2", say(key, { ...values, limit: fill(cause) })),
    element("dl", list, { class: "facts" }),
    element("p", element("a", `${say("charts")} (${say(name)})`, { href: `/result/${one.id}` })),
    expertFigures(name, one),
  ]);
}

/** Who can change the end, or the part of the path, that has the limit. */
function whoCan(name, at) {
  if (at === "none") return "nobody";
  if (at !== "sender" && at !== "receiver") return "network";
  if ((at === "sender") === (name === "download")) return "operator";
  return shown.shared ? "tester" : "device";
}

function expertFigures(name, one) {
  const { result, tcp, probes: within } = one;
  const times = within.map(([, ms]) => ms);
  const rows = [
    ["bytes", bytesText(one.bytes ?? result.bytes)],
    ["duration", timeText(result.duration * 1000)],
    ...(times.length ? [["rttProbes", `${timeText(quantile(times, 0.5))}, ${timeText(quantile(times, 0.9))}, ${times.length}`]] : []),
    ...(tcp ? tcpRows(name, tcp) : []),
    ["confidence", `${number(result.limit.confidence * 100)}\u00a0%`],
  ];
  const own = rows.map(([about, what]) => row(say(about), what));
  const evidence = Object.entries(result.limit.evidence).map(([about, what]) => row(about, what, { lang: "en" }));
  const remedies = result.remedies.map(({ id, why, commands }) => row(id, [why, ...commands.apply].join(" · "), { lang: "en" }));
  const body = element("table", element("tbody", [...own, ...evidence, ...remedies]));
  return element("details", [element("summary", say("figures")), element("div", body, { class: "wide", tabindex: 0, role: "group", "aria-label": say("figures") })]);
}

function row(about, what, attributes) {
  return element("tr", [element("th", about, { scope: "row" }), element("td", what)], attributes);
}

function tcpRows(name, tcp) {
  const micros = (time) => timeText(time / 1000);
  const rows = [["rttTcp", `${micros(tcp.MinRTT)}, ${micros(tcp.RTT)}`]];
  if (name === "upload") return rows;
  return [
    ...rows,
    ["retransmitted", bytesText(tcp.BytesRetrans)],
    ...(tcp.SndCwnd ? [["window", bytesText(tcp.SndCwnd * tcp.SndMSS)], ["mss", bytesText(tcp.SndMSS)]] : []),
    ["busy", `${micros(tcp.RWndLimited)}, ${micros(tcp.SndBufLimited)}`],
  ];
}

function showLink() {
  const link = $("link");
  link.href = `${location.origin}/#${WAYS.map((name) => shown[name].id).join(".")}`;
  link.textContent = say("link");
  $("copy").hidden = !navigator.clipboard;
  $("copy").textContent = say("copy");
  const seconds = WAYS.map((name) => shown[name].result?.kept_for).find(Boolean) ?? 0;
  $("kept").textContent = say("kept", { minutes: Math.round(seconds / 60) });
}

function showTexts() {
  document.documentElement.lang = LANGUAGES[language];
  document.title = say("title");
  for (const one of document.querySelectorAll("[data-text]")) one.textContent = say(one.dataset.text);
  for (const one of document.querySelectorAll("[data-label]")) one.setAttribute("aria-label", say(one.dataset.label));
  const choice = document.querySelector(".languages");
  choice.setAttribute("aria-label", say("language"));
  for (const one of choice.children) one.setAttribute("aria-pressed", one.lang === LANGUAGES[language]);
  show();
}

function begin() {
  $("unable").remove();
  for (const one of document.querySelectorAll(".languages, .action, #method")) one.hidden = false;
  $("host").textContent = location.host;
  $("command").textContent = `fullpipe measure ndt7${location.protocol === "http:" ? "+ws" : ""}://${location.host}`;
  for (const one of document.querySelectorAll(".languages button")) {
    one.onclick = () => {
      language = LANGUAGES.indexOf(one.lang);
      showTexts();
    };
  }
  $("start").onclick = () => (running ? running.abort() : run());
  $("copy").onclick = async () => {
    await navigator.clipboard.writeText($("link").href);
    $("copy").textContent = say("copied");
  };
  addEventListener("hashchange", showShared);
  addEventListener("resize", showFigures);
  watchProbes();
  showTexts();
  showShared();
}

begin();
