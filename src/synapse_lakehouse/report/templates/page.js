"use strict";
(() => {
  const published = document.getElementById("published");
  const updateAge = () => {
    const hours = (Date.now() - Date.parse(published.dateTime)) / 3600000;
    const count = hours < 1 ? Math.max(0, Math.round(hours * 60)) : hours < 48 ? Math.round(hours) : Math.round(hours / 24);
    const unit = hours < 1 ? "minute" : hours < 48 ? "hour" : "day";
    document.getElementById("age").textContent = ", " + count + " " + unit + (count === 1 ? "" : "s") + " ago";
    const limit = Number(document.querySelector(".status").dataset.overdueHours);
    document.getElementById("overdue").hidden = hours <= limit;
  };
  if (published) {
    updateAge();
    setInterval(updateAge, 60000);
  }
  const draw = async (figure) => {
    const spec = JSON.parse(document.getElementById(figure.dataset.spec).textContent);
    const width = figure.clientWidth;
    spec.config.legend.columns = Math.max(1, Math.floor(width / 270));
    spec.config.legend.labelLimit = Math.min(320, width - 90);
    spec.config.axisY = { labelLimit: Math.min(260, width * 0.4) };
    try {
      await vegaEmbed(figure, spec, { renderer: "svg", actions: false, ast: true });
    } catch (error) {
      figure.textContent = "The chart could not be drawn. The table has its values.";
      console.error(error);
    }
  };
  const charts = [...document.querySelectorAll(".chart")].map(draw);
  Promise.all(charts).then(() => document.documentElement.setAttribute("data-drawn", "true"));
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((item) => !item.querySelector("pre"));
    opened.forEach((item) => { item.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((item) => { item.open = false; }));
})();
