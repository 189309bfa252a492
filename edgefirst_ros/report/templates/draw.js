(function () {
  "use strict";
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function axis(own) {
    return Object.assign({ gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true, fixedrange: false }, own || {});
  }
  function fitting(names, range, width) {
    return names.filter(function (one, n) {
      var end = n + 1 < names.length ? names[n + 1].x : range[1];
      return (end - one.x) / (range[1] - range[0]) * (width - 120) >= 6 * one.text.length;
    });
  }
  function layout(own, height, width) {
    var narrow = window.innerWidth < 600, named = (own.annotations || []).length > 0;
    var all = Object.assign({
      autosize: true, height: height, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: colour("--ink") },
      legend: { orientation: "h", y: named ? 1.16 : 1.02, yanchor: "bottom", x: 0 }, hovermode: "closest", dragmode: narrow ? false : "zoom", bargap: 0.2,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--link") }
    }, own);
    if (named) { all.annotations = fitting(own.annotations, own.xaxis.range, width); }
    all.margin = Object.assign({ l: 54, r: 14, t: named ? 40 : 26, b: 40 }, own.margin || {});
    all.xaxis = axis(own.xaxis);
    all.yaxis = axis(own.yaxis);
    return all;
  }
  function draw() {
    document.querySelectorAll(".plot").forEach(function (box) {
      var said = JSON.parse(document.getElementById(box.id + "-data").textContent);
      window.Plotly.react(box, said.data, layout(said.layout, said.height, box.clientWidth), {
        responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtonsToRemove: ["toImage", "lasso2d", "select2d"]
      });
    });
  }
  draw();
  var waiting;
  window.addEventListener("resize", function () { clearTimeout(waiting); waiting = setTimeout(draw, 100); });
  dark.addEventListener("change", draw);
})();
