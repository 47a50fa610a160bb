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
  const tabs = tabList ? [...tabList.querySelectorAll("button")] : [];
  const chartOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const select = (tab) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", chosen);
      other.tabIndex = chosen ? 0 : -1;
      chartOf(other).hidden = !chosen;
    }
  };
  if (tabList) {
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
  for (const link of document.querySelectorAll("a[data-metric]")) {
    link.addEventListener("click", (event) => {
      const figure = [...document.querySelectorAll("figure")].find((one) => one.dataset.metric === link.dataset.metric);
      if (!figure) return;
      select(tabs.find((tab) => chartOf(tab).contains(figure)));
      figure.scrollIntoView({ block: "center" });
      event.preventDefault();
    });
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
  // Returns how to note what is shown, and how to show it again.
  const showGames = (source) => {
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

    const turnView = (game, [seat, observation, reply, status, verdict, board]) => {
      const turn = element("article", status === "opponent" ? "turn" : "turn ours");
      const header = element("header");
      header.append(element("b", "", { opponent: "Opponent", unproven: "Recorded" }[status] ?? "Policy"));
      if (seat !== null) header.append(element("span", "", `seat ${seat}`));
      if (status === "replaced") header.append(element("span", "badge bad", "replaced by a random legal action"));
      if (VERDICTS[verdict]) header.append(element("span", "badge bad", VERDICTS[verdict]));
      turn.append(header);
      if (observation !== null && texts[observation]) turn.append(element("pre", "seen", texts[observation]));
      turn.append(element("pre", "said", texts[reply]));
      if (board !== null) turn.append(element("pre", "seen", texts[board]));
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
      details.dataset.key = [game.stage, game.game, game.kind, game.iteration, game.seat, game.seed].join("|");
      details.fill = () => {
        if (details.childElementCount > 1) return;
        const body = element("div", "turns");
        const settings = Object.entries(game.options).map(([name, value]) => `${name} ${value}`);
        const facts = [`policy in seat ${game.seat}`, `opponent: ${game.opponent.replace("_", " ")}`, `seed ${game.seed}`, ...settings];
        if (game.forfeited_by !== null) facts.push(`forfeited by seat ${game.forfeited_by}`);
        body.append(element("p", "meta", facts.join(" · ")));
        if (game.error) body.append(element("p", "badge bad meta", `Could not be played again: ${game.error}`));
        body.append(...game.turns.map((turn) => turnView(game, turn)));
        if (game.result) body.append(element("p", "meta", game.result));
        details.append(body);
      };
      details.addEventListener("toggle", details.fill);
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
    return {
      note: () => ({ shown, filters: Object.keys(options).map((name) => [name, form.elements[name].value]) }),
      recall: (noted) => {
        shown = noted.shown;
        for (const [name, value] of noted.filters) if (options[name].includes(value)) form.elements[name].value = value;
        update();
      },
    };
  };
  const source = document.getElementById("episode-data");
  const shownGames = source && showGames(source);

  // ---- loading the page again while the run goes on ----
  // What a reader has opened and where is noted in the entry of the browser's history, which a page loaded again finds.
  const places = () => [...document.querySelectorAll("main section, main [data-key], main figure")].filter((one) => one.getClientRects().length);
  const nameOf = (one) => one.dataset.key ?? one.dataset.metric ?? one.id;
  let paused = false;

  const note = () => {
    const above = places().filter((one) => one.getBoundingClientRect().top < 80).pop();
    const chosen = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    const state = {
      paused,
      theme: root.dataset.theme,
      metric: chosen < 0 ? null : chartOf(tabs[chosen]).querySelector("figure")?.dataset.metric,
      games: shownGames && shownGames.note(),
      folds: [...document.querySelectorAll("details[data-key]")].map((one) => [one.dataset.key, one.open]),
      sideways: [...document.querySelectorAll(".scroll")].map((one) => [one.getAttribute("aria-label"), one.scrollLeft]).filter((pair) => pair[1]),
      place: scrollY > 8 && above ? [nameOf(above), above.getBoundingClientRect().top] : null,
    };
    history.replaceState({ report: state }, "");
  };

  const recall = (state) => {
    paused = state.paused;
    if (state.theme) root.dataset.theme = state.theme;
    const tab = tabs.find((one) => [...chartOf(one).querySelectorAll("figure")].some((figure) => figure.dataset.metric === state.metric));
    if (tab) select(tab);
    if (shownGames && state.games) shownGames.recall(state.games);
    const folds = new Map(state.folds);
    for (const one of document.querySelectorAll("details[data-key]")) {
      if (!folds.has(one.dataset.key)) continue;
      one.open = folds.get(one.dataset.key);
      if (one.open && one.fill) one.fill();
    }
    for (const [label, left] of state.sideways) {
      const one = [...document.querySelectorAll(".scroll")].find((box) => box.getAttribute("aria-label") === label);
      if (one) one.scrollLeft = left;
    }
    if (!state.place) return;
    const one = places().find((place) => nameOf(place) === state.place[0]);
    if (one) scrollBy({ top: one.getBoundingClientRect().top - state.place[1], behavior: "instant" });
  };

  const noted = history.state?.report;
  if (noted) {
    history.scrollRestoration = "manual"; // the browser would go by pixels, and the page has grown
    recall(noted);
  }
  addEventListener("pagehide", note);

  const status = document.getElementById("status");
  const written = Number(root.dataset.written);
  const reloadAfter = Number(root.dataset.reload);
  const opened = performance.now();
  const ago = (seconds) => (seconds < 100 ? `${Math.round(seconds)} s` : seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);
  let pressed = false;
  addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = false; });
  // A reader who points, selects or chooses would lose what they are at.
  const busy = () => pressed || document.hidden || !getSelection().isCollapsed || document.activeElement?.tagName === "SELECT" || document.querySelector("svg[data-points]:hover");

  const tick = () => {
    const age = Math.max(0, Date.now() / 1000 - written);
    const stale = root.dataset.state === "running" && age > Number(root.dataset.stale);
    status.classList.toggle("stale", stale);
    document.getElementById("age").textContent = `, ${ago(age)} ago${stale ? ": the run may have been stopped" : ""}`;
    if (paused || busy() || performance.now() - opened < 1000 * reloadAfter) return;
    note();
    history.scrollRestoration = "manual";
    location.reload();
  };
  if (reloadAfter) {
    const pause = document.getElementById("pause");
    const say = () => {
      pause.textContent = paused ? "Go on" : "Pause";
      document.getElementById("reloads").hidden = paused;
    };
    pause.addEventListener("click", () => { paused = !paused; say(); });
    pause.hidden = false;
    say();
    tick();
    setInterval(tick, 1000);
  }
})();
