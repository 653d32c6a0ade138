"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (index) => css(`--c${index % 7}`);
  const faint = (hex, opacity) => hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
  const text = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads markup
  const wrapped = (label, letters) => text(label).replace(new RegExp(`(.{${letters}}\\S*) `, "g"), "$1<br>");
  // Names differ more at their ends.
  const clipped = (name, letters) => text(name.length > letters ? `${name.slice(0, letters / 3)}…${name.slice(1 - 2 * letters / 3)}` : name);

  function smoothed(values, width) {
    const reach = (width - 1) / 2;
    return values.map((value, k) => {
      const near = values.slice(Math.max(0, k - reach), k + reach + 1).filter((each) => each !== null);
      return value === null ? null : near.reduce((sum, each) => sum + each, 0) / near.length;
    });
  }

  function lines(chart, width) {
    return chart.series.flatMap((series) => {
      const [mean, low, high] = [series.mean, series.low, series.high].map((values) => smoothed(values, width));
      const runs = series.runs.map((run) => smoothed(run, width));
      const paint = colour(series.colour), known = mean.map((_, k) => k).filter((k) => low[k] !== null);
      const shared = { name: text(series.name), legendgroup: series.name, mode: "lines", type: "scatter" };
      const behind = { ...shared, showlegend: false, hoverinfo: "skip" };
      return [
        { ...behind, x: runs.flatMap(() => [...series.x, null]), y: runs.flatMap((run) => [...run, null]),
          line: { color: faint(paint, runs.length > 12 ? 0.15 : 0.3), width: 0.8 } },
        { ...behind, x: [...known, ...known.toReversed()].map((k) => series.x[k]),
          y: [...known.map((k) => high[k]), ...known.toReversed().map((k) => low[k])],
          fill: "toself", fillcolor: faint(paint, 0.2), line: { width: 0, color: paint } },
        { ...shared, x: series.x, y: mean, line: { color: paint, width: 2.2, dash: DASHES[series.colour % 4] },
          customdata: mean.map((_, k) => (low[k] === null ? "" : ` [${low[k].toPrecision(4)}, ${high[k].toPrecision(4)}]`)),
          hovertemplate: "%{y:.4~g}%{customdata}" },
      ];
    });
  }

  function bars(chart) {
    const paints = chart.rows.map((row) => colour(row.colour)), values = chart.rows.map((row) => row.value[0]);
    const reach = (end) => chart.rows.map((row) => (row.value[end] === null ? 0 : Math.abs(row.value[end] - row.value[0])));
    const y = chart.rows.map((_, k) => k), names = chart.rows.map((row) => text(row.name));
    const interval = { type: "data", symmetric: false, array: reach(2), arrayminus: reach(1), color: css("--ink"), thickness: 1.6, width: 0 };
    const shown = { x: values, y, text: names, error_x: interval, hovertemplate: "%{text}: %{x:.4~g}<extra></extra>" };
    return [
      chart.from_zero
        ? { ...shown, type: "bar", orientation: "h", textposition: "none", marker: { color: paints.map((paint) => faint(paint, 0.75)) } }
        : { ...shown, type: "scatter", mode: "markers", marker: { color: paints, symbol: "diamond", size: 10 } },
      { type: "scatter", mode: "markers", hovertemplate: "%{x:.4~g}<extra></extra>",
        x: chart.rows.flatMap((row) => row.dots), y: chart.rows.flatMap((row, k) => row.dots.map(() => k)),
        marker: { size: 5, opacity: 0.45, color: chart.from_zero ? css("--ink") : chart.rows.flatMap((row, k) => row.dots.map(() => paints[k])) } },
    ];
  }

  function draw(host) {
    const chart = figures[host.dataset.figure][host.dataset.chart];
    const most = host.clientWidth < 500 ? 22 : 44; // letters of the name of a bar
    const letters = chart.rows ? Math.min(most, Math.max(...chart.rows.map((row) => row.name.length))) : 0;
    const label = wrapped(chart.x_label, Math.max(12, Math.floor((host.clientWidth - 80) / 6.5 - letters - 6)));
    const ink = css("--ink"), grid = { gridcolor: css("--line"), zeroline: false, automargin: true, ticklabelstandoff: 4, fixedrange: true };
    const layout = {
      title: { text: clipped(chart.title, 60), font: { size: 14 }, x: 0, xref: "paper", xanchor: "left", y: 0.98, yref: "container", yanchor: "top" },
      font: { color: ink, size: 12 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
      margin: { l: 50, r: 16, t: 34, b: 30 + 15 * label.split("<br>").length }, hoverlabel: { bgcolor: css("--panel"), font: { color: ink } },
      xaxis: { ...grid, title: { text: label } }, yaxis: { ...grid, title: { text: chart.y_label ?? "" } },
    };
    let traces;
    if (chart.series) {
      const choice = host.closest("section").querySelector("[data-smooth]");
      traces = lines(chart, choice ? Number(choice.value) : 1);
      const letters = Math.max(...chart.series.map((series) => series.name.length));
      const columns = Math.max(1, Math.floor((host.clientWidth - 66) / (6.5 * letters + 60)));
      const room = 26 * Math.ceil(chart.series.length / columns);
      Object.assign(layout, { height: 310 + room, hovermode: "x unified", showlegend: true });
      Object.assign(layout.margin, { b: 54 + room });
      layout.legend = { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", maxheight: 2 * room, font: { size: 11 } };
    } else {
      traces = bars(chart);
      const ticks = chart.rows.map((row) => clipped(row.name, most));
      Object.assign(layout, { height: 75 + 15 * label.split("<br>").length + 28 * chart.rows.length, showlegend: false, hovermode: "closest" });
      Object.assign(layout.yaxis, { tickvals: chart.rows.map((_, k) => k), ticktext: ticks, range: [chart.rows.length - 0.5, -0.5], showgrid: false });
      Object.assign(layout.xaxis, chart.from_zero ? { rangemode: "tozero" } : {});
      layout.shapes = chart.marks.map((mark) => ({ type: "line", x0: mark, x1: mark, yref: "paper", y0: 0, y1: 1, line: { color: ink, width: 1, dash: "dash" } }));
    }
    Plotly.react(host, traces, layout, { responsive: true, displayModeBar: false });
  }

  const hosts = [...document.querySelectorAll(".chart")];
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
      seen.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "600px" });
  hosts.forEach((host) => seen.observe(host));
  const redraw = (within) => hosts.filter((host) => host.layout && within.contains(host)).forEach(draw);
  document.querySelectorAll("[data-smooth]").forEach((choice) => choice.addEventListener("change", () => redraw(choice.closest("section"))));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(document));
  matchMedia("print").addEventListener("change", () => hosts.forEach(draw));
})();
