"use strict";
// Everything below adds to a page that can be read without it, except the games. Text from the run reaches the page
// through textContent only.

(() => {
  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // ---- light and dark ----
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // ---- one quantity at a time ----
  const tabList = document.querySelector(".tabs");
  if (tabList) {
    const tabs = [...tabList.querySelectorAll("button")];
    const select = (tab) => {
      for (const other of tabs) {
        const chosen = other === tab;
        other.setAttribute("aria-selected", chosen);
        other.tabIndex = chosen ? 0 : -1;
        document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
      }
    };
    tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => select(tab));
      tab.addEventListener("keydown", (event) => {
        const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!move) return;
        const next = tabs[(index + move + tabs.length) % tabs.length];
        select(next);
        next.focus();
        event.preventDefault();
      });
    });
    tabList.hidden = false;
    document.getElementById("curves").classList.add("tabbed");
    select(tabs[0]);
  }

  // ---- reading values off a curve ----
  const stageNames = [...document.querySelectorAll("#stages table th[scope=row] .chip")].map((chip) => chip.nextSibling.textContent.trim());
  for (const svg of document.querySelectorAll("svg[data-points]")) {
    const output = svg.closest("figure").querySelector("output");
    const cursor = svg.querySelector(".cursor");
    const resting = output.textContent;
    let points;
    svg.addEventListener("pointermove", (event) => {
      points ??= svg.dataset.points.split(";").map((point) => point.split(" "));
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const near = points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      cursor.setAttribute("cx", near[0]);
      cursor.setAttribute("cy", near[1]);
      output.textContent = `${stageNames[near[2]]}, ${near[3]}: ${near[4]}`;
    });
    svg.addEventListener("pointerleave", () => {
      cursor.setAttribute("cx", -9);
      output.textContent = resting;
    });
  }

  // ---- games ----
  const source = document.getElementById("episode-data");
  if (!source) return;
  const { texts, games, stages } = JSON.parse(source.textContent);
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const more = document.getElementById("more");
  const PAGE = 25;
  let shown = PAGE;
  const VERDICTS = {
    illegal: "illegal, asked again",
    forfeit_illegal: "illegal again: forfeit",
    forfeit_malformed: "no single action: forfeit",
  };
  const kinds = { train: "training", accept: "acceptance", evaluate: "evaluation" };

  const options = {
    game: [...new Set(games.map((game) => game.game))].sort(),
    stage: stages.filter((stage) => games.some((game) => game.stage === stage)),
    outcome: [...new Set(games.map((game) => game.outcome))].sort(),
    kind: [...new Set(games.map((game) => game.kind))].sort(),
  };
  for (const [name, values] of Object.entries(options)) {
    for (const value of values) {
      const option = element("option", "", name === "kind" ? kinds[value] ?? value : value);
      option.value = value;
      form.elements[name].append(option);
    }
  }

  const turnView = (game, [seat, observation, reply, status, verdict]) => {
    const turn = element("article", status === "opponent" ? "turn" : "turn ours");
    const header = element("header");
    header.append(element("b", "", { opponent: "Opponent", unproven: "Recorded" }[status] ?? "Policy"));
    if (seat !== null) header.append(element("span", "", `seat ${seat}`));
    if (status === "replaced") header.append(element("span", "badge bad", "replaced by a random legal action"));
    if (VERDICTS[verdict]) header.append(element("span", "badge bad", VERDICTS[verdict]));
    turn.append(header);
    if (observation !== null && texts[observation]) turn.append(element("pre", "seen", texts[observation]));
    turn.append(element("pre", "said", texts[reply]));
    return turn;
  };

  const gameView = (game) => {
    const details = element("details", "episode");
    const summary = element("summary");
    const reward = game.reward === null ? "" : ` · reward ${Number(game.reward.toFixed(3))}`;
    const when = game.kind === "evaluate" ? "" : ` ${game.iteration}`;
    summary.append(
      element("b", "", game.game),
      element("span", `badge ${game.outcome}`, game.outcome),
      element("span", "end", `${game.stage} · ${kinds[game.kind] ?? game.kind}${when} · ${game.turns.length} replies${reward}`),
    );
    details.append(summary);
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      const body = element("div", "turns");
      const settings = Object.entries(game.options).map(([name, value]) => `${name} ${value}`);
      const facts = [`policy in seat ${game.seat}`, `opponent: ${game.opponent.replace("_", " ")}`, `seed ${game.seed}`, ...settings];
      if (game.forfeited_by !== null) facts.push(`forfeited by seat ${game.forfeited_by}`);
      body.append(element("p", "meta", facts.join(" · ")));
      if (game.error) body.append(element("p", "badge bad meta", `Could not be played again: ${game.error}`));
      body.append(...game.turns.map((turn) => turnView(game, turn)));
      details.append(body);
    });
    return details;
  };

  const update = () => {
    const wanted = Object.keys(options).filter((name) => form.elements[name].value);
    const found = games.filter((game) => wanted.every((name) => game[name] === form.elements[name].value));
    list.replaceChildren(...found.slice(0, shown).map(gameView));
    more.hidden = found.length <= shown;
    document.getElementById("shown").textContent = `${Math.min(shown, found.length)} of ${found.length} games`;
  };
  form.addEventListener("change", () => { shown = PAGE; update(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => { shown += PAGE; update(); });
  update();
})();
