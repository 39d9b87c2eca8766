// Elements, buttons and calls without a framework. Text is never parsed as HTML, because
// strangers write labels.

/** Returns an element. Attributes that are null or false are left out; children are nodes or text. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Returns a button that copies text() and confirms it. refused is shown if the browser forbids copying. */
export function copyButton(what, text, label = 'Copy', refused = 'Select and copy by hand') {
  const button = element('button', { type: 'button', class: 'copy', 'aria-label': `Copy ${what}` }, label);
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = 'Copied';
    } catch {
      button.textContent = refused;
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
  return button;
}

/** Runs act, unless act still runs after an earlier press of the button. Marks the button with aria-disabled meanwhile, because a disabled button would lose the focus. */
export async function once(button, act) {
  if (button.hasAttribute('aria-disabled')) return;
  button.setAttribute('aria-disabled', 'true');
  try {
    await act();
  } finally {
    button.removeAttribute('aria-disabled');
  }
}

/** Calls this origin. Returns {status, ok, headers, text, json, date} of the answer. json: null if the text is not JSON; date: the service's time in ms. */
export async function call(method, path, { token, body, header = {}, signal } = {}) {
  const headers = { ...header };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const response = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', credentials: 'omit', redirect: 'error', signal,
  });
  const text = await response.text();
  let json = null;
  try {
    json = JSON.parse(text);
  } catch { /* json stays null */ }
  return { status: response.status, ok: response.ok, headers: response.headers, text, json, date: Date.parse(response.headers.get('date')) || Date.now() };
}

/** Returns the service's error code, or undefined if the answer has none. An error that a proxy answers has no code. */
export const codeOf = (answer) => /^([A-Z_]+): /.exec(answer.json?.error)?.[1];

/** Returns what the service says is wrong, without its code, which is for programs. */
export const problemOf = (answer) => answer.json?.error?.replace(/^[A-Z_]+: /, '') ?? `the service answered ${answer.status}`;
