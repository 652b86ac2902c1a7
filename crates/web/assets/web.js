(() => {
  'use strict';
  const find = (selector) => document.querySelector(selector);
  const send = (method, address, body) =>
    fetch(address, {
      method,
      headers: body ? { 'Content-Type': 'application/json' } : {},
      body: body && JSON.stringify(body),
    });

  // The token behind # is exchanged for a cookie, and forgotten.
  async function logIn(token) {
    const answer = await send('POST', '/login', { token });
    if (answer.ok) {
      location.replace(location.pathname + location.search);
    } else {
      find('#refused').hidden = false;
    }
  }

  const login = find('#login');
  if (login) {
    login.addEventListener('submit', (event) => {
      event.preventDefault();
      logIn(new FormData(login).get('token'));
    });
    if (location.hash.length > 1) logIn(location.hash.slice(1));
  } else if (location.hash.length > 1) {
    history.replaceState(null, '', location.pathname + location.search);
  }

  async function start(button) {
    button.disabled = true;
    const answer = await send('POST', '/api/v1/runs', JSON.parse(button.dataset.run));
    if (answer.ok) {
      location.assign('/');
      return;
    }
    const refused = find('#refused');
    refused.textContent = (await answer.json()).error.message;
    refused.hidden = false;
    button.disabled = false;
  }

  document.addEventListener('click', (event) => {
    const { run, stop } = event.target.dataset ?? {};
    if (run !== undefined) start(event.target);
    if (stop !== undefined) send('DELETE', '/api/v1/runs');
  });

  // The part of a page that grows, as long as it does.
  async function refresh() {
    const part = find('[data-refresh]');
    if (!part) return;
    if (!document.hidden) {
      const answer = await fetch(location.href).catch(() => undefined);
      const text = answer?.ok ? await answer.text() : undefined;
      const page = text && new DOMParser().parseFromString(text, 'text/html');
      const grown = page?.querySelector('#content > div');
      if (grown && grown.innerHTML !== part.innerHTML) part.replaceWith(grown);
    }
    setTimeout(refresh, 3000);
  }
  setTimeout(refresh, 3000);

  // What runs, as it happens. A page that nobody sees asks for nothing.
  const live = find('[data-live]');
  let source;
  function listen() {
    if (document.hidden) {
      source?.close();
      source = undefined;
      return;
    }
    if (source) return;
    source = new EventSource('/api/v1/runs/events');
    const show = (event) => {
      live.innerHTML = JSON.parse(event.data);
      find('#lost').hidden = true;
    };
    source.addEventListener('running', show);
    source.addEventListener('ended', show);
    source.addEventListener('error', () => {
      find('#lost').hidden = false;
      // One that is refused for good, as while the server starts, is tried again.
      if (source.readyState === EventSource.CLOSED) {
        source = undefined;
        setTimeout(listen, 2000);
      }
    });
  }
  if (live) {
    document.addEventListener('visibilitychange', listen);
    listen();
  }
})();
