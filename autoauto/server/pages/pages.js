(() => {
  const every = Number(document.querySelector("main [data-refresh-s]")?.dataset.refreshS);
  const parts = () => document.querySelectorAll("[data-live]");
  const shown = new Map();
  const show = (part, html) => {
    if (html === (shown.get(part.id) ?? part.innerHTML)) return;
    shown.set(part.id, html);
    part.innerHTML = html;
    for (const copy of part.querySelectorAll("button.copy")) copy.hidden = !navigator.clipboard;
  };
  const refresh = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        if (answer.redirected) return location.reload();
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of answer.ok ? parts() : []) {
          const now = page.getElementById(part.id);
          if (now) show(part, now.innerHTML);
        }
        if (answer.ok && !page.querySelector("main [data-refresh-s]")) return;
      } catch { /* the server is away, and is asked again */ }
    }
    setTimeout(refresh, 1000 * every);
  };
  if (every) setTimeout(refresh, 1000 * every);
})();
