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

  // The form of another target takes over what was written in fields that both have.
  const takeOver = (old, field) => {
    if (old.type === "checkbox") field.checked = old.checked;
    else if (old.type === "file") field.files = old.files;
    else if (!field.options || [...field.options].some((option) => option.value === old.value)) field.value = old.value;
    if (old.value && old.type !== "checkbox" || old.checked) field.closest("details")?.setAttribute("open", "");
  };
  document.addEventListener("click", async (event) => {
    const link = event.target.closest(".targets a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    try {
      const answer = await fetch(link.href, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return location.assign(link.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = document.querySelector("main");
      const written = main.querySelectorAll("input:not([type=hidden]), select, textarea");
      main.replaceWith(document.adoptNode(page.querySelector("main")));
      for (const old of written) {
        const field = document.getElementById(old.id);
        if (field) takeOver(old, field);
      }
      history.replaceState(null, "", link.href);
    } catch { location.assign(link.href); }
  });
})();
