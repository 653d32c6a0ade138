"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const DASHES = ["", "9 3", "3 2.5", "9 3 2 3"];
  const figures = JSON.parse(document.getElementById("data").textContent);

  function node(name, attributes = {}, text = null, parent = null) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  function element(name, className, text, parent) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== null) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  const colour = (index) => `var(--c${index % 7})`;
  const dash = (index) => DASHES[index % DASHES.length];

  function show(value, digits = 4) {
    if (value === null || !Number.isFinite(value)) return "–";
    value = Number(value.toPrecision(Math.abs(value) >= 1e3 && Math.abs(value) < 1e4 ? 4 : digits)); // may reach a unit
    const size = Math.abs(value);
    if (size >= 1e6) return trim((value / 1e6).toPrecision(digits)) + "M";
    if (size >= 1e4) return trim((value / 1e3).toPrecision(digits)) + "k";
    return size === 0 ? "0" : trim(value.toPrecision(size >= 1e3 ? 4 : digits));
  }

  function trim(text) {
    const number = Number(text);
    return Math.abs(number) >= 1e-4 && !text.includes("e") ? String(number).replace("-", "−") : text.replace("-", "−");
  }

  function clip(text, room) {
    const letters = Math.max(8, Math.floor(room / 6.8));
    return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
  }

  function ticks(low, high, wanted) {
    const raw = (high - low) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && found.length < 100; k++) found.push(k * step);
    return found.length > 1 || wanted > 8 ? found : ticks(low, high, 2 * wanted);
  }

  function extent(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (value === null || !Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return [0, 1];
    const alike = high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high)); // a mean of equal values may round
    return alike ? [low - Math.max(1, Math.abs(low)) * 0.05, high + Math.max(1, Math.abs(high)) * 0.05] : [low, high];
  }

  function path(xs, ys, x, y) {
    let text = "", pen = false;
    for (let k = 0; k < xs.length; k++) {
      if (ys[k] === null) { pen = false; continue; }
      text += `${pen ? "L" : "M"}${x(xs[k]).toFixed(1)} ${y(ys[k]).toFixed(1)}`;
      pen = true;
    }
    return text;
  }

  function band(xs, low, high, x, y) {
    let text = "", run = [];
    const close = () => {
      if (run.length > 1) {
        text += run.map((k, i) => `${i ? "L" : "M"}${x(xs[k]).toFixed(1)} ${y(high[k]).toFixed(1)}`).join("");
        text += run.reverse().map((k) => `L${x(xs[k]).toFixed(1)} ${y(low[k]).toFixed(1)}`).join("") + "Z";
      }
      run = [];
    };
    for (let k = 0; k < xs.length; k++) if (low[k] === null || high[k] === null) close(); else run.push(k);
    close();
    return text;
  }

  function tooltip(host) {
    const tip = element("div", "tip", null, host);
    tip.hidden = true;
    return {
      hide: () => { tip.hidden = true; },
      show: (left, top, title, lines) => {
        tip.replaceChildren();
        element("b", "", title, tip);
        for (const line of lines) {
          const row = element("div", "", null, tip);
          if (line.colour !== undefined) element("i", "", null, row).style.background = colour(line.colour);
          row.appendChild(document.createTextNode(line.text));
        }
        tip.hidden = false;
        const room = host.clientWidth - tip.offsetWidth;
        const beside = left + 14 > room ? left - tip.offsetWidth - 14 : left + 14;
        tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
        tip.style.top = `${Math.max(0, top)}px`;
      },
    };
  }

  const between = (value, low, high) => show(value) + (low === null || high === null ? "" : ` [${show(low)}, ${show(high)}]`);

  function averaged(values, width) {
    const reach = (width - 1) / 2;
    if (!reach) return values;
    return values.map((value, k) => {
      if (value === null) return null;
      const near = values.slice(Math.max(0, k - reach), k + reach + 1).filter((each) => each !== null);
      return near.reduce((sum, each) => sum + each, 0) / near.length;
    });
  }

  function smoothed(chart, width) {
    const mean = (values) => averaged(values, width);
    return chart.series.map((s) => ({ ...s, mean: mean(s.mean), low: mean(s.low), high: mean(s.high), runs: s.runs.map(mean) }));
  }

  function drawLines(host, chart) {
    element("h4", "", chart.title, host);
    const legend = element("div", "legend", null, host);
    const hidden = new Set();
    const frame = element("div", "frame", null, host);
    const tip = tooltip(host);
    chart.series.forEach((series, index) => {
      const button = element("button", "", null, legend);
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.title = "show or hide";
      const key = node("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, null, button);
      node("line", { x1: 0, y1: 4, x2: 22, y2: 4, "stroke-width": 3, "stroke-dasharray": dash(series.colour), style: `stroke:${colour(series.colour)}` }, null, key);
      element("span", "", series.name, button);
      button.addEventListener("click", () => {
        if (!hidden.delete(index)) hidden.add(index);
        button.setAttribute("aria-pressed", String(!hidden.has(index)));
        draw();
      });
    });
    if (chart.note) element("p", "note", chart.note, host);

    const choice = host.closest("section").querySelector("[data-smooth]");
    function draw() {
      tip.hide();
      frame.replaceChildren();
      const all = smoothed(chart, choice ? Number(choice.value) : 1);
      const width = Math.max(260, frame.clientWidth || 600), height = Math.max(240, Math.min(340, width * 0.62));
      const shown = all.filter((_, index) => !hidden.has(index));
      const pool = shown.length ? shown : all;
      const [, right] = extent(pool.flatMap((s) => [s.x[0], s.x[s.x.length - 1]]));
      const left = pool[0].runs.length ? 0 : Math.min(...pool.map((s) => s.x[0]));
      const [bottom, top] = extent(pool.flatMap((s) => [...s.mean, ...s.low, ...s.high, ...s.runs.flat()]));
      const pad = (top - bottom) * 0.04;
      const yTicks = ticks(bottom - pad, top + pad, 5), labels = yTicks.map((tick) => show(tick));
      const margin = { left: 30 + 7 * Math.max(...labels.map((l) => l.length)), right: 14, top: 8, bottom: 40 };
      const x = (v) => margin.left + ((v - left) / (right - left)) * (width - margin.left - margin.right);
      const y = (v) => height - margin.bottom - ((v - bottom + pad) / (top - bottom + 2 * pad)) * (height - margin.top - margin.bottom);
      const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${chart.y_label} ${chart.title}` }, null, frame);
      svg.style.maxWidth = `${width}px`;
      yTicks.forEach((tick, k) => {
        node("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(tick), y2: y(tick) }, null, svg);
        node("text", { x: margin.left - 6, y: y(tick) + 4, "text-anchor": "end" }, labels[k], svg);
      });
      for (const tick of ticks(left, right, width / 90)) {
        node("line", { class: "axis", x1: x(tick), x2: x(tick), y1: height - margin.bottom, y2: height - margin.bottom + 4 }, null, svg);
        node("text", { x: x(tick), y: height - margin.bottom + 17, "text-anchor": "middle" }, show(tick), svg);
      }
      node("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }, null, svg);
      node("text", { class: "label", x: (margin.left + width - margin.right) / 2, y: height - 5, "text-anchor": "middle" }, chart.x_label, svg);
      if (chart.y_label) node("text", { class: "label", transform: `translate(12 ${(margin.top + height - margin.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, chart.y_label, svg);
      for (const s of shown) {
        const group = node("g", { class: "series", "data-name": s.name, style: `stroke:${colour(s.colour)}` }, null, svg);
        if (s.runs.length) node("path", { class: "runs", d: s.runs.map((run) => path(s.x, run, x, y)).join(""), fill: "none", "stroke-width": 0.8, opacity: s.runs.length > 12 ? 0.12 : 0.28 }, null, group);
        node("path", { class: "band", d: band(s.x, s.low, s.high, x, y), style: `fill:${colour(s.colour)}`, stroke: "none", opacity: 0.2 }, null, group);
        node("path", { class: "mean", d: path(s.x, s.mean, x, y), fill: "none", "stroke-width": 2.2, "stroke-dasharray": dash(s.colour), "stroke-linejoin": "round" }, null, group);
      }
      const cursor = node("g", { class: "cursor", visibility: "hidden" }, null, svg);
      const rule = node("line", { class: "axis", y1: margin.top, y2: height - margin.bottom }, null, cursor);
      const dots = shown.map((s) => node("circle", { r: 3.5, style: `fill:${colour(s.colour)}` }, null, cursor));
      const leave = () => { cursor.setAttribute("visibility", "hidden"); tip.hide(); };
      const move = (event) => {
        const box = svg.getBoundingClientRect();
        const px = ((event.clientX - box.left) / box.width) * width;
        if (!shown.length || px < margin.left || px > width - margin.right) { leave(); return; }
        const at = left + ((px - margin.left) / (width - margin.left - margin.right)) * (right - left);
        const lines = [];
        shown.forEach((s, index) => {
          const step = s.x[1] - s.x[0];
          const k = Math.round((at - s.x[0]) / step);
          const there = k >= 0 && k < s.x.length && s.mean[k] !== null;
          dots[index].setAttribute("visibility", there ? "inherit" : "hidden");
          if (!there) return;
          dots[index].setAttribute("cx", x(s.x[k]));
          dots[index].setAttribute("cy", y(s.mean[k]));
          lines.push({ colour: s.colour, text: `${s.name}: ${between(s.mean[k], s.low[k], s.high[k])}` });
        });
        rule.setAttribute("x1", px);
        rule.setAttribute("x2", px);
        cursor.setAttribute("visibility", "visible");
        const frameBox = host.getBoundingClientRect();
        tip.show(event.clientX - frameBox.left, event.clientY - frameBox.top - 20, `${chart.x_label}: ${show(at)}`, lines);
      };
      svg.addEventListener("pointermove", move);
      svg.addEventListener("pointerdown", move);
      svg.addEventListener("pointerleave", leave);
    }
    return draw;
  }

  function drawRows(host, chart) {
    element("h4", "", chart.title, host);
    const frame = element("div", "frame", null, host);
    const tip = tooltip(host);
    if (chart.note) element("p", "note", chart.note, host);

    return function draw() {
      tip.hide();
      frame.replaceChildren();
      const width = Math.max(260, frame.clientWidth || 600);
      const longest = Math.max(...chart.rows.map((row) => Math.max(row.name.length, row.task.length))) * 6.8 + 14;
      const above = longest > width * 0.36;
      const pitch = above ? 40 : 26;
      const tasks = new Set(chart.rows.map((row) => row.task).filter(Boolean)).size;
      const margin = { left: above ? 12 : longest, right: 56, top: 4, bottom: 42 };
      const height = margin.top + margin.bottom + chart.rows.length * pitch + tasks * 22;
      const values = chart.rows.flatMap((row) => [...row.value, ...row.dots]).concat(chart.mark, chart.bars ? [0] : []);
      let [low, high] = extent(values);
      const pad = (high - low) * 0.04;
      low = chart.bars && low >= 0 ? 0 : low - pad;
      high += pad;
      const x = (v) => margin.left + ((v - low) / (high - low)) * (width - margin.left - margin.right);
      const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${chart.title}, ${chart.x_label}` }, null, frame);
      svg.style.maxWidth = `${width}px`;
      const floor = height - margin.bottom;
      for (const tick of ticks(low, high, (width - margin.left - margin.right) / 70)) {
        node("line", { class: "grid", x1: x(tick), x2: x(tick), y1: margin.top, y2: floor }, null, svg);
        node("text", { x: x(tick), y: floor + 16, "text-anchor": "middle" }, show(tick), svg);
      }
      for (const mark of chart.mark) node("line", { class: "mark", x1: x(mark), x2: x(mark), y1: margin.top, y2: floor }, null, svg);
      let y = margin.top, task = "";
      for (const row of chart.rows) {
        if (row.task !== task) {
          task = row.task;
          y += 22;
          node("text", { class: "task halo", x: above ? 2 : 0, y: y - 6 }, clip(task, width), svg);
        }
        const group = node("g", { class: "row", "data-name": row.name }, null, svg);
        const [point, from, to] = row.value;
        node("rect", { x: 0, y, width, height: pitch, fill: "transparent" }, null, group);
        node("text", { class: "label halo", x: above ? margin.left : margin.left - 10, y: y + (above ? 13 : 17), "text-anchor": above ? "start" : "end" }, clip(row.name, above ? width - 20 : longest), group);
        const middle = y + (above ? 27 : 13);
        const paint = `fill:${colour(row.colour)}`, stroke = `stroke:${colour(row.colour)}`;
        if (chart.bars) node("rect", { x: Math.min(x(0), x(point)), y: middle - 8, width: Math.abs(x(point) - x(0)), height: 16, style: paint, opacity: 0.75 }, null, group);
        for (const dot of row.dots) node("circle", { cx: x(dot), cy: middle, r: 2.6, style: chart.bars ? "fill:var(--ink)" : paint, opacity: 0.4 }, null, group);
        if (from !== null && to !== null) node("line", { x1: x(from), x2: x(to), y1: middle, y2: middle, "stroke-width": 2, style: chart.bars ? "stroke:var(--ink)" : stroke }, null, group);
        if (!chart.bars) node("path", { d: `M${x(point)} ${middle - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5Z`, style: paint }, null, group);
        const end = Math.max(x(point), to === null ? 0 : x(to), ...row.dots.map(x));
        node("text", { class: "label halo", x: end + 8, y: middle + 4 }, show(point, 3), group);
        group.addEventListener("pointermove", (event) => {
          const box = host.getBoundingClientRect();
          const lines = [{ colour: row.colour, text: between(point, from, to) }];
          if (row.dots.length) lines.push({ text: `seeds: ${row.dots.map((dot) => show(dot)).join(", ")}` });
          tip.show(event.clientX - box.left, event.clientY - box.top + 14, [row.task || chart.title, row.name].join(": "), lines);
        });
        group.addEventListener("pointerleave", tip.hide);
        y += pitch;
      }
      node("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: floor, y2: floor }, null, svg);
      const label = node("text", { class: "label", x: (margin.left + width - margin.right) / 2, y: height - 6, "text-anchor": "middle" }, chart.x_label, svg);
      const room = (width - 4) / Math.max(1, label.getComputedTextLength());
      if (room < 1) label.style.fontSize = `${12 * room}px`;
      const half = label.getComputedTextLength() / 2;
      label.setAttribute("x", Math.max(half + 2, Math.min(width - half - 2, (margin.left + width - margin.right) / 2)));
    };
  }

  const redraws = new Map();
  const observer = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const known = redraws.get(entry.target);
      if (known && known.width !== entry.contentRect.width) {
        known.width = entry.contentRect.width;
        known.draw();
      }
    }
  });
  for (const choice of document.querySelectorAll("[data-smooth]")) {
    choice.addEventListener("change", () => {
      for (const host of choice.closest("section").querySelectorAll(".chart")) redraws.get(host).draw();
    });
  }
  for (const host of document.querySelectorAll(".chart")) {
    const chart = figures[host.dataset.figure][host.dataset.chart];
    const draw = (chart.kind === "lines" ? drawLines : drawRows)(host, chart);
    draw();
    redraws.set(host, { draw, width: host.clientWidth });
    observer.observe(host);
  }
})();
