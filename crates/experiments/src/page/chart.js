// Charts of a page: hover and keyboard read values, names in the legend hide series, and axes, smoothing and seeds are the reader's choice.
"use strict";

const html = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
function build(element, attributes = {}, children = []) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined && value !== false) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// What the reader chose, kept while a page that is being written reloads itself. A browser may refuse to keep it for a file.
const store = {
  get(key, otherwise) { try { return JSON.parse(sessionStorage.getItem(key)) ?? otherwise; } catch { return otherwise; } },
  set(key, value) { try { sessionStorage.setItem(key, JSON.stringify(value)); } catch { /* not kept */ } },
};
const chosen = { hidden: new Set(store.get("hidden", [])), log: store.get("log", {}), smooth: store.get("smooth", 0), seeds: store.get("seeds", "band") };
function choose(change) {
  change();
  for (const key of ["log", "smooth", "seeds"]) store.set(key, chosen[key]);
  store.set("hidden", [...chosen.hidden]);
  Chart.all.forEach((chart) => chart.draw());
}

// About four digits, with a true minus sign.
function number(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2)
    : size >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
  return text.replace("-", "−");
}
function tickText(value) {
  const size = Math.abs(value);
  const text = value === 0 ? "0" : size >= 1e6 && size < 1e9 ? `${+(value / 1e6).toPrecision(6)}M`
    : size >= 1e4 && size < 1e6 ? `${+(value / 1e3).toPrecision(6)}k`
    : size < 1e-3 || size >= 1e9 ? value.toExponential().replace("+", "") : String(+value.toPrecision(6));
  return text.replace("-", "−");
}

const colour = (slot) => `var(--c${slot % 8})`;

// From values to pixels.
class Scale {
  constructor(values, log, from, to, wanted) {
    let usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    if (!usable.length) usable = log ? [1, 10] : [0, 1];
    let low = usable.reduce((a, b) => Math.min(a, b)), high = usable.reduce((a, b) => Math.max(a, b));
    if (log) {
      const room = Math.max((high / low) ** 0.04, high / low < 1.5 ? 1.5 : 1);
      [low, high] = [low / room, high * room];
    } else {
      // One value alone: the axis begins at zero, so that a dot has a place.
      if (high - low <= 1e-12 * Math.max(Math.abs(high), 1)) [low, high] = high === 0 ? [0, 1] : [Math.min(0, low * 1.2), Math.max(0, high * 1.2)];
      this.step = Scale.round((high - low) / wanted);
      [low, high] = [Math.floor(low / this.step + 1e-9) * this.step, Math.ceil(high / this.step - 1e-9) * this.step];
    }
    Object.assign(this, { log, low, high, from, to });
  }
  static round(raw) {
    const unit = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 2.5, 5, 10].find((m) => m * unit >= raw * 0.999) * unit;
  }
  at(v) {
    if (!Number.isFinite(v) || (this.log && v <= 0)) return NaN;
    const share = this.log ? Math.log(v / this.low) / Math.log(this.high / this.low) : (v - this.low) / (this.high - this.low);
    return this.from + share * (this.to - this.from);
  }
  within(v) { return Number.isNaN(v) ? NaN : this.at(Math.min(Math.max(v, this.low), this.high)); }
  ticks() {
    const found = [];
    if (!this.log) {
      for (let i = Math.round(this.low / this.step); i * this.step <= this.high + 1e-9 * this.step; i++) found.push(+(i * this.step).toPrecision(12));
      return found;
    }
    const decades = Math.log10(this.high / this.low), stride = Math.max(Math.ceil(decades / 6), 1);
    const between = decades < 1.5 ? [1, 2, 3, 5] : decades < 3 ? [1, 3] : [1];
    const first = Math.floor(Math.floor(Math.log10(this.low)) / stride) * stride;
    for (let e = first; e <= Math.log10(this.high); e += stride) {
      for (const m of between) if (m * 10 ** e >= this.low && m * 10 ** e <= this.high) found.push(+(m * 10 ** e).toPrecision(6));
    }
    return found;
  }
}

// An exponential moving average without the pull of its start; `weight` 0 changes nothing.
function smoothed(values, weight) {
  let mean = 0, mass = 0;
  return values.map((v) => {
    if (!Number.isFinite(v)) return v;
    mean = weight * mean + (1 - weight) * v;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

class Chart {
  static all = [];

  // `options`: `compact` for charts below an animation, `pick(x)` when the reader clicks.
  constructor(host, plot, options = {}) {
    Object.assign(this, { host, plot, options, cursor: null });
    this.key = plot.title + "|" + plot.y.label;
    this.xs = [...new Set(plot.series.flatMap((s) => s.x))].sort((a, b) => a - b);
    this.build();
    Chart.all.push(this);
    new ResizeObserver(() => this.draw()).observe(this.area);
  }

  get log() { return chosen.log[this.key] ?? this.plot.y.log; }

  build() {
    const { plot, options } = this;
    const tools = html("div", { class: "tools" });
    const head = html("div", { class: "chart-head" }, html(options.compact ? "h4" : "h3", {}, plot.title), tools);
    if (!options.compact) {
      const button = html("button", { type: "button", class: "small", "aria-pressed": this.log }, "log scale");
      button.addEventListener("click", () => choose(() => {
        chosen.log[this.key] = !this.log;
        button.setAttribute("aria-pressed", this.log);
      }));
      tools.append(button);
    }
    if (plot.curve && plot.series.some((s) => s.x.length > 5)) {
      this.smooth = html("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: chosen.smooth });
      this.smooth.addEventListener("input", () => choose(() => { chosen.smooth = +this.smooth.value; }));
      tools.append(html("label", {}, "smoothing ", this.smooth));
    }
    if (plot.series.some((s) => s.seeds)) {
      const choices = [["band", "mean and deviation"], ["lines", "each seed"]].map(([value, text]) => html("option", { value }, text));
      this.seeds = html("select", {}, ...choices);
      this.seeds.addEventListener("change", () => choose(() => { chosen.seeds = this.seeds.value; }));
      tools.append(html("label", {}, "seeds ", this.seeds));
    }
    this.legend = html("div", { class: "legend" });
    this.keys = plot.series.filter((s) => s.name).map((series) => {
      const sign = svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, this.sign(series));
      const key = html("button", { type: "button", class: "key", "aria-pressed": "true", title: "Click to hide or show, double-click to show it alone" }, sign, series.name);
      key.addEventListener("click", () => choose(() => chosen.hidden.delete(series.name) || chosen.hidden.add(series.name)));
      key.addEventListener("dblclick", () => choose(() => {
        plot.series.forEach((s) => chosen.hidden.add(s.name));
        chosen.hidden.delete(series.name);
      }));
      this.legend.append(key);
      return [series, key];
    });
    this.area = html("div", { class: "plot" });
    this.tip = html("div", { class: "tip", hidden: "" });
    this.said = html("p", { class: "unseen", "aria-live": "polite" });
    if (options.compact) tools.append(this.legend);
    this.host.prepend(head, ...(this.keys.length && !options.compact ? [this.legend] : []), this.area, this.said);
    if (!options.compact) this.host.append(this.values());
    this.area.addEventListener("pointermove", (event) => this.hover(event));
    this.area.addEventListener("pointerleave", () => this.point(null));
    this.area.addEventListener("click", (event) => { this.hover(event); if (options.pick && this.cursor !== null) options.pick(this.cursor); });
    this.area.addEventListener("keydown", (event) => this.press(event));
  }

  sign(series) {
    const look = { stroke: "none", style: `stroke:${colour(series.slot)};fill:none`, "stroke-width": 2.5, "stroke-linecap": "round" };
    if (series.mark === "points") return svg("circle", { cx: 11, cy: 6, r: 4, style: `fill:${colour(series.slot)}` });
    return svg("path", { ...look, d: "M2 6h18", "stroke-dasharray": this.dash(series) });
  }
  dash(series) { return series.mark === "dashed" || series.slot >= 8 ? "5 4" : undefined; }

  // All values in a table, for whoever would rather read; filled when it is opened.
  values() {
    const box = html("details", { class: "values" }, html("summary", {}, "Values"));
    box.addEventListener("toggle", () => {
      if (!box.open || box.children.length > 1) return;
      const named = this.plot.series, xs = this.xs.slice(0, 2000);
      const cell = (text, tag = "td") => html(tag, {}, text);
      const rows = xs.map((x) => html("tr", {}, cell(number(x)), ...named.map((s) => cell(s.x.includes(x) ? number(s.y[s.x.indexOf(x)]) : ""))));
      const header = html("tr", {}, cell(this.plot.x.label, "th"), ...named.map((s) => cell(s.name || this.plot.y.label, "th")));
      box.append(html("div", { class: "wide" }, html("table", {}, html("thead", {}, header), html("tbody", {}, ...rows))));
    });
    return box;
  }

  shown() { return this.plot.series.filter((s) => !chosen.hidden.has(s.name)); }

  // A series as it is drawn now: smoothed, or seed by seed.
  lines(series) {
    const weight = this.plot.curve && series.mark === "line" ? chosen.smooth : 0;
    if (series.seeds && chosen.seeds === "lines") return series.seeds.map((s) => ({ x: s.x, y: smoothed(s.y, weight) }));
    const edge = (values) => values && smoothed(values, weight);
    return [{ x: series.x, y: smoothed(series.y, weight), low: edge(series.low), high: edge(series.high) }];
  }

  draw() {
    const width = this.area.clientWidth;
    if (!width) return;
    const { plot, options } = this, height = options.compact ? 120 : Math.min(Math.max(width * 0.5, 220), 340);
    for (const [series, key] of this.keys) key.setAttribute("aria-pressed", !chosen.hidden.has(series.name));
    if (this.smooth) this.smooth.value = chosen.smooth;
    if (this.seeds) this.seeds.value = chosen.seeds;
    const shown = this.shown().map((series) => ({ series, lines: this.lines(series) }));
    const all = (pick) => shown.flatMap((s) => s.lines.flatMap(pick));
    const [top, bottom] = options.compact ? [6, 22] : [22, 40];
    const heights = all((l) => [...l.y, ...(l.low ?? []), ...(l.high ?? [])]).filter(Number.isFinite), least = Math.min(...heights);
    // An axis that would begin not far from zero begins there.
    if (plot.curve && !this.log && least > 0 && least < 0.6 * Math.max(...heights)) heights.push(0);
    const y = new Scale(heights, this.log, height - bottom, top, options.compact ? 3 : 6);
    // Charts below an animation share their left edge, so that a step lies at one place in all of them.
    const texts = y.ticks().map(tickText), left = options.compact ? 44 : 12 + 7.2 * Math.max(...texts.map((t) => t.length), 1);
    const from = plot.curve || this.xs.length < 2 ? [0] : [];
    const x = new Scale(all((l) => l.x).concat(plot.x.log ? [] : from), plot.x.log, left, width - 14, Math.max(width / 110, 3));
    // Along x an axis ends where the data do.
    const along = all((l) => l.x).concat(from), ends = [Math.min(...along), Math.max(...along)];
    if (!plot.x.log && ends[1] > ends[0]) [x.low, x.high] = options.compact ? [0, this.xs.at(-1)] : ends;
    Object.assign(this, { x, y, drawn: shown, size: [width, height] });
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": this.summary() });
    y.ticks().forEach((tick, i) => {
      const at = y.at(tick);
      picture.append(svg("path", { class: "grid", d: `M${left} ${at}H${x.to}` }), svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, texts[i]));
    });
    (plot.marks ?? []).forEach((mark) => picture.append(svg("path", { class: "grid", d: `M${x.at(mark)} ${y.to}V${y.from}` })));
    for (const tick of x.ticks()) {
      if (tick < x.low || tick > x.high) continue;
      const at = x.at(tick), anchor = at > width - 30 ? "end" : at < left + 6 ? "start" : "middle";
      picture.append(svg("path", { class: "axis", d: `M${at} ${y.from}v4` }), svg("text", { x: anchor === "end" ? x.to : at, y: y.from + 17, "text-anchor": anchor }, tickText(tick)));
    }
    picture.append(svg("path", { class: "axis", d: `M${left} ${y.from}H${x.to}` }));
    if (!options.compact) {
      picture.append(svg("text", { x: 2, y: 12, class: "label" }, plot.y.label), svg("text", { x: x.to, y: height - 5, "text-anchor": "end", class: "label" }, plot.x.label));
    }
    for (const { series, lines } of shown) for (const line of lines) this.band(picture, series, line);
    for (const { series, lines } of shown) for (const line of lines) this.line(picture, series, line, lines.length > 1);
    this.cursorMark = svg("g", { class: "cursor", "pointer-events": "none" });
    picture.append(this.cursorMark);
    this.area.replaceChildren(picture, this.tip);
    this.mark();
  }

  band(picture, series, line) {
    if (!line.low) return;
    const points = line.x.map((v, i) => [this.x.at(v), this.y.within(line.low[i]), this.y.within(line.high[i])]).filter((p) => p.every(Number.isFinite));
    const around = points.map(([px, low]) => `${px.toFixed(1)},${low.toFixed(1)}`).concat(points.reverse().map(([px, , high]) => `${px.toFixed(1)},${high.toFixed(1)}`));
    picture.append(svg("polygon", { points: around.join(" "), style: `fill:${colour(series.slot)};fill-opacity:.16` }));
  }

  line(picture, series, line, thin) {
    const points = line.x.map((v, i) => [this.x.at(v), this.y.at(line.y[i])]), shown = points.filter((p) => p.every(Number.isFinite));
    const place = ([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`;
    if (series.mark === "points") {
      const size = shown.length < 300 ? 6 : shown.length < 2000 ? 3.6 : 2.6, faint = shown.length < 300 ? 0.9 : 0.45;
      picture.append(svg("path", { d: shown.map((p) => `M${place(p)}h0`).join(""), style: `stroke:${colour(series.slot)};stroke-opacity:${faint}`, "stroke-width": size, "stroke-linecap": "round" }));
      return;
    }
    // A point that cannot be shown breaks the line.
    let joined = false, path = "";
    for (const p of points) {
      const fine = p.every(Number.isFinite);
      if (fine) path += (joined ? "L" : "M") + place(p);
      joined = fine;
    }
    picture.append(svg("path", { d: path, fill: "none", style: `stroke:${colour(series.slot)}`, "stroke-width": thin ? 1.2 : 2, "stroke-linejoin": "round", "stroke-dasharray": this.dash(series) }));
    // Few points are seen as such, and one alone is not nothing.
    if (series.mark === "line" && shown.length <= 25 && !this.options.compact) {
      picture.append(svg("path", { d: shown.map((p) => `M${place(p)}h0`).join(""), style: `stroke:${colour(series.slot)}`, "stroke-width": shown.length === 1 ? 9 : 5.5, "stroke-linecap": "round" }));
    }
  }

  summary() {
    const last = this.shown().filter((s) => s.name && s.y.length && s.mark !== "points").map((s) => `${s.name} ends at ${number(s.y.at(-1))}`);
    return [this.plot.title, `${this.plot.y.label} over ${this.plot.x.label}`, ...last.slice(0, 8), "arrow keys read values"].join("; ");
  }

  // Values at one place: of each series the nearest point, unless that is far.
  read(at) {
    const near = [];
    for (const { series, lines } of this.drawn) {
      lines.forEach((line, seed) => {
        let best = -1;
        line.x.forEach((v, i) => { if (Number.isFinite(line.y[i]) && (best < 0 || Math.abs(v - at) < Math.abs(line.x[best] - at))) best = i; });
        const reference = series.mark === "dashed" && line.x.length === 2;
        if (best < 0 || (!reference && Math.abs(this.x.at(line.x[best]) - this.x.at(at)) > 14)) return;
        const spread = line.low ? ` (${number(line.low[best])} to ${number(line.high[best])})` : "";
        near.push({ series, x: line.x[best], y: line.y[best], text: number(line.y[best]) + spread, name: (series.name || this.plot.y.label) + (lines.length > 1 ? ` seed ${seed}` : "") });
      });
    }
    return near;
  }

  hover(event) {
    if (!this.x || event.target.closest?.(".tip")) return;
    const box = this.area.getBoundingClientRect(), at = event.clientX - box.left;
    let best = null;
    for (const v of this.xs) if (best === null || Math.abs(this.x.at(v) - at) < Math.abs(this.x.at(best) - at)) best = v;
    this.point(best);
  }

  press(event) {
    if (!this.xs.length) return;
    const here = this.cursor === null ? -1 : this.xs.indexOf(this.cursor), last = this.xs.length - 1;
    const to = { ArrowRight: Math.min(here + 1, last), ArrowLeft: Math.max(here - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.point(null);
    else if (event.key === "Enter" && this.options.pick && this.cursor !== null) this.options.pick(this.cursor);
    else if (to !== undefined) {
      this.point(this.xs[to]);
      this.said.textContent = `${this.plot.x.label} ${number(this.xs[to])}: ` + this.read(this.xs[to]).map((v) => `${v.name} ${v.text}`).join("; ");
      event.preventDefault();
    }
  }

  point(x) { this.cursor = x; this.mark(); }

  // The place that an animation has come to; stays when nothing is pointed at.
  follow(x) { this.place = x; if (this.cursor === null) this.mark(); }

  mark() {
    if (!this.cursorMark) return;
    const at = this.cursor ?? this.place ?? null;
    this.cursorMark.replaceChildren();
    this.tip.hidden = this.cursor === null;
    if (at === null) return;
    const px = this.x.at(at);
    if (this.place !== undefined) this.cursorMark.append(svg("path", { class: "now", d: `M${this.x.at(this.place)} ${this.y.to}V${this.y.from}` }));
    if (this.cursor === null) return;
    const near = this.read(at);
    this.cursorMark.append(svg("path", { class: "at", d: `M${px} ${this.y.to}V${this.y.from}` }));
    for (const v of near) this.cursorMark.append(svg("circle", { cx: this.x.at(v.x), cy: this.y.at(v.y), r: 4, style: `fill:${colour(v.series.slot)}` }));
    const lines = near.map((v) => html("div", {}, html("i", { style: `background:${colour(v.series.slot)}` }), `${v.name} `, html("b", {}, v.text)));
    this.tip.replaceChildren(html("div", { class: "faint" }, `${this.plot.x.label} ${number(near[0]?.x ?? at)}`), ...lines);
    const right = px > this.size[0] / 2;
    Object.assign(this.tip.style, right ? { left: "", right: `${this.size[0] - px + 12}px` } : { left: `${px + 12}px`, right: "" });
  }
}

// The page itself: charts, commands to copy, light and dark, and what is open while it reloads.
function begin() {
  document.querySelectorAll("figure.chart").forEach((figure) => new Chart(figure, JSON.parse(figure.querySelector("script").textContent)));
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try { await navigator.clipboard.writeText(code.textContent); } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));
  const theme = document.getElementById("theme"), root = document.documentElement;
  const names = { auto: "theme: auto", light: "theme: light", dark: "theme: dark" };
  const paint = (name) => {
    if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
    theme.textContent = names[name];
    theme.setAttribute("aria-label", `${names[name]}; click to change`);
    try { localStorage.setItem("theme", name); } catch { /* not kept */ }
    dispatchEvent(new Event("repaint"));
  };
  let now = "auto";
  try { now = localStorage.getItem("theme") ?? "auto"; } catch { /* none */ }
  if (!(now in names)) now = "auto";
  paint(now);
  theme.addEventListener("click", () => {
    const order = Object.keys(names);
    now = order[(order.indexOf(now) + 1) % order.length];
    paint(now);
  });
  // A page that is still being written reloads itself, and looks as it did before.
  const pause = +document.body.dataset.refresh;
  const folds = [...document.querySelectorAll("main > details")];
  const open = new Set(store.get("open", []));
  folds.forEach((fold, i) => { if (pause && open.has(i)) fold.open = true; });
  if (pause) {
    scrollTo(0, store.get("scroll", 0));
    addEventListener("pagehide", () => {
      store.set("scroll", scrollY);
      store.set("open", folds.flatMap((fold, i) => (fold.open ? [i] : [])));
    });
    setTimeout(() => location.reload(), 1000 * pause);
  }
}
