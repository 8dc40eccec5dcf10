"use strict";
// The pages of `meme watch`: a list of runs, or one run whose name is in the address after #.

const SECONDS = 3;
const element = (id) => document.getElementById(id);
const digits = (number, decimals) =>
  number.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).replaceAll(",", "\u202f");
const grouped = (number) => digits(number, 0);
const tenths = (number) => digits(number, 1);
const score = (value) => (value === null || value === undefined ? "–" : tenths(value));
const percent = (value) => (value === null || value === undefined ? "–" : tenths(100 * value) + " %");

let shown = null; // the run that the page shows
let version = null; // of its charts
let videoFrames = null; // of the video that the page shows
let timer = null;
let asked = 0; // counts requests, so that answers to earlier ones are dropped

// Like `duration` in number_format.rs.
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const rounded = Math.round(seconds);
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(rounded / unit));
  if (rounded < 120) return `${rounded} s`;
  if (minutes < 120) return `${minutes} min`;
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

async function answer(path) {
  const response = await fetch(path);
  if (response.status === 204) return null;
  if (response.status === 401) throw new Error("the token is missing or wrong");
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

function cell(row, content, kind) {
  const td = row.insertCell();
  if (kind) td.className = kind;
  if (content instanceof Node) td.append(content);
  else td.textContent = content;
  return td;
}

function badge(run) {
  const mark = document.createElement("span");
  mark.className = "badge" + ({ running: " good", cut_off: " warning" }[run.state] ?? "");
  mark.textContent = run.state.replace("_", " ");
  return mark;
}

function progressOf(run) {
  const bar = document.createElement("progress");
  bar.max = run.budget ?? 1;
  bar.value = Math.min(run.frames, bar.max);
  bar.title = percent(bar.value / bar.max);
  return bar;
}

// The scores of the evaluation as a small curve, with a dashed line at human level if that is in reach.
function curveOf(run) {
  const drawing = (name, attributes) => {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
    return shape;
  };
  const [width, height, scores] = [100, 24, run.scores];
  const svg = drawing("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" });
  if (scores.length < 2) return svg;
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const span = high - low || 1;
  const y = (value) => height - ((value - low) / span) * height;
  svg.setAttribute("aria-label", `evaluation scores from ${score(low)} to ${score(high)}`);
  if (run.human_score !== null && run.human_score >= low && run.human_score <= high) {
    svg.append(drawing("line", { x1: 0, x2: width, y1: y(run.human_score), y2: y(run.human_score) }));
  }
  const x = (i) => (i * width) / (scores.length - 1);
  svg.append(drawing("polyline", { points: scores.map((value, i) => `${x(i)},${y(value)}`).join(" ") }));
  return svg;
}

function showList(runs) {
  const body = document.createElement("tbody");
  const headings = [...element("runs").tHead.rows[0].cells].map((heading) => heading.textContent);
  for (const run of runs) {
    const row = body.insertRow();
    const link = document.createElement("a");
    link.href = "#" + encodeURIComponent(run.name);
    link.textContent = run.name;
    cell(row, link, "word");
    cell(row, badge(run), "word");
    cell(row, progressOf(run));
    cell(row, grouped(run.frames));
    cell(row, curveOf(run));
    cell(row, score(run.last_evaluation));
    cell(row, percent(run.human_normalised));
    cell(row, score(run.best_evaluation));
    cell(row, run.frames_per_second === null ? "–" : grouped(run.frames_per_second));
    cell(row, duration(run.seconds_left));
    // Shown where there is no room for the row of headings.
    headings.forEach((heading, i) => (row.cells[i].dataset.label = heading));
  }
  element("runs").tBodies[0].replaceWith(body);
  element("none").hidden = runs.length > 0;
  element("runs").hidden = runs.length === 0;
}

function showFacts(run) {
  element("badge").replaceChildren(badge(run));
  element("about").textContent = `${run.task}, preset ${run.preset}, seed ${run.seed}`;
  // Name, value, and what stands below it.
  const facts = [
    ["score", score(run.last_evaluation), run.human_score === null ? null : `human ${score(run.human_score)}, random ${score(run.random_score)}`],
    ["best score", score(run.best_evaluation), null],
    ["human-normalised", percent(run.human_normalised), null],
    ["frames", grouped(run.frames), run.budget === null ? null : `of ${grouped(run.budget)}`],
    ["speed", run.frames_per_second === null ? "–" : grouped(run.frames_per_second), run.frames_per_second === null ? null : "frames/s"],
    ["time left", duration(run.seconds_left), null],
  ];
  if (run.human_score === null) facts.splice(2, 1);
  const entries = facts.map(([name, value, note]) => {
    const entry = document.createElement("div");
    const line = (kind, text, className) => {
      const part = document.createElement(kind);
      part.textContent = text;
      part.className = className;
      entry.append(part);
      return part;
    };
    line("dt", name, "");
    line("dd", value, "value").id = "fact-" + name.replace(/[^a-z]+/g, "-");
    if (note !== null) line("dd", note, "note");
    if (name === "frames") line("dd", "", "note").append(progressOf(run));
    return entry;
  });
  element("facts").replaceChildren(...entries);
}

function showVideo(name, video) {
  const image = element("video");
  const fresh = video.newest && video.newest.frames === video.newest_checkpoint;
  const parts = [];
  if (video.newest) parts.push(`The agent at ${grouped(video.newest.frames)} frames, with its values and policy.`);
  if (video.recording) parts.push("An episode of the newest checkpoint is being played on the CPU, by a separate process of the lowest priority.");
  else if (video.failure) parts.push("The last recording failed: " + video.failure);
  else if (video.newest_checkpoint === null) parts.push("There is no checkpoint yet.");
  else if (!fresh) parts.push(`The newest checkpoint, at ${grouped(video.newest_checkpoint)} frames, has no video yet. Playing an episode takes one CPU core for a while, at the lowest priority; the GPU is not used.`);
  element("video-text").textContent = parts.join(" ");
  element("record").disabled = video.recording || fresh || video.newest_checkpoint === null;
  if (video.newest && video.newest.frames !== videoFrames) {
    videoFrames = video.newest.frames;
    image.src = `api/video?name=${encodeURIComponent(name)}&version=${videoFrames}`;
  }
  image.hidden = !video.newest;
}

function showCharts(live) {
  version = live.version;
  const figures = live.charts.map((svg) => {
    const figure = document.createElement("figure");
    figure.innerHTML = svg; // drawn by the server, which escapes names
    return figure;
  });
  element("charts").replaceChildren(...figures);
  const warnings = live.warnings === null ? ["Too few rows for health checks."] : live.warnings;
  const lines = warnings.map((text) => {
    const line = document.createElement("p");
    line.className = live.warnings === null ? "faint" : "warning";
    line.textContent = text;
    return line;
  });
  if (lines.length === 0) {
    lines.push(document.createElement("p"));
    lines[0].className = "good";
    lines[0].textContent = "No warnings: nothing is flat, explodes or lies at a bound.";
  }
  element("warnings").className = live.warnings?.length ? "found" : "";
  element("warnings").replaceChildren(...lines);
}

function showDetails(name, details) {
  element("run").hidden = false;
  showFacts(details.run);
  showVideo(name, details.video);
  const log = element("log");
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.textContent = details.log.join("\n") || "There are no messages yet.";
  if (atEnd) log.scrollTop = log.scrollHeight;
  const body = document.createElement("tbody");
  for (const difference of details.differences) {
    const row = body.insertRow();
    for (const text of difference) cell(row, text, "word");
  }
  element("differences").tBodies[0].replaceWith(body);
  element("differences").hidden = details.differences.length === 0;
  element("same").hidden = !element("differences").hidden;
  if (element("config").textContent !== details.config) element("config").textContent = details.config;
}

async function update() {
  clearTimeout(timer);
  const [name, number] = [shown, ++asked];
  try {
    if (name === null) {
      const runs = await answer("api/runs");
      if (number !== asked) return;
      showList(runs);
    } else {
      const query = "name=" + encodeURIComponent(name);
      const details = await answer("api/run?" + query);
      const live = await answer("api/charts?" + query + (version === null ? "" : "&version=" + version));
      if (number !== asked) return;
      showDetails(name, details);
      if (live) showCharts(live);
    }
    element("state").textContent = `updated ${new Date().toLocaleTimeString()}, every ${SECONDS} s`;
  } catch (error) {
    if (number !== asked) return;
    element("state").textContent = "no answer: " + error.message;
  }
  // A page that nobody sees asks nothing.
  if (!document.hidden) timer = setTimeout(update, 1000 * SECONDS);
}

function route() {
  const name = decodeURIComponent(location.hash.slice(1));
  shown = name === "" ? null : name;
  version = videoFrames = null;
  element("record").disabled = true;
  element("video").hidden = true;
  element("list").hidden = shown !== null;
  element("run").hidden = true; // until there is something to show
  element("where").textContent = shown === null ? "" : " / " + shown;
  document.title = shown === null ? "meme watch" : shown + " – meme watch";
  for (const id of ["badge", "charts", "warnings", "facts"]) element(id).replaceChildren();
  update();
}

element("record").addEventListener("click", async () => {
  element("record").disabled = true;
  await fetch("api/record?name=" + encodeURIComponent(shown), { method: "POST" });
  update();
});
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => !document.hidden && update());
route();
