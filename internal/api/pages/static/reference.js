// Draws the API reference from /openapi.json: each operation with its
// parameters, body, answers and examples, and each schema once.

import { byId, call, element, problemOf } from './dom.js';

let doc;

/** Follows local $refs. Returns {name, value}: name is the last one followed, or null; value is the schema found. */
function resolve(value) {
  let name = null;
  while (value?.$ref) {
    name = value.$ref.split('/').at(-1);
    value = value.$ref.slice(2).split('/').reduce((at, step) => at?.[step.replaceAll('~1', '/').replaceAll('~0', '~')], doc);
  }
  return { name, value: value ?? {} };
}

/** Returns the text in parts, with each `code` as an element. */
const inline = (text) => text.split('`').map((part, i) => (i % 2 ? element('code', {}, part) : part));

const prose = (text) => (text ?? '').split('\n\n').filter(Boolean).map((paragraph) => element('p', {}, inline(paragraph)));

const anchor = (name) => `schema-${name}`;

function typeOf(schema) {
  const { name, value } = resolve(schema);
  if (name) return [element('a', { href: `#${anchor(name)}` }, name), value.nullable ? ' or null' : ''];
  const many = value.oneOf ?? value.anyOf ?? value.allOf;
  let type = [value.type ?? 'any'];
  if (many) type = many.flatMap((one, i) => [i ? (value.allOf ? ' and ' : ' or ') : '', ...typeOf(one)]);
  else if (value.type === 'array') type = ['array of ', ...typeOf(value.items ?? {})];
  else if (value.type === 'object' && value.additionalProperties?.type) type = ['object of ', ...typeOf(value.additionalProperties)];
  return value.nullable ? [...type, ' or null'] : type;
}

function limits({ value }) {
  const said = [];
  if (value.enum) said.push(value.enum.length > 12 ? `one of ${value.enum.length} values` : `one of ${value.enum.map((v) => JSON.stringify(v)).join(', ')}`);
  for (const [key, words] of [['minimum', 'at least'], ['maximum', 'at most'], ['minLength', 'length at least'], ['maxLength', 'length at most'],
    ['minItems', 'items at least'], ['maxItems', 'items at most'], ['pattern', 'pattern']]) {
    if (value[key] !== undefined) said.push(`${words} ${value[key]}`);
  }
  if (value.default !== undefined) said.push(`default ${JSON.stringify(value.default)}`);
  return said.join('; ');
}

function rows(entries) {
  return element('dl', { class: 'members' }, entries.map(({ name, schema, required, place, description }) => {
    const found = resolve(schema);
    return element('div', {},
      element('dt', {}, element('code', {}, name), element('span', { class: 'type' }, place ? `${place}, ` : '', typeOf(schema), required ? ', required' : '')),
      element('dd', {}, inline(description ?? found.value.description ?? ''), found.name ? null : element('span', { class: 'limits' }, limits(found))));
  }));
}

function members(schema) {
  const { value } = resolve(schema);
  if (!value.properties) return null;
  return rows(Object.entries(value.properties).map(([name, inner]) => ({ name, schema: inner, required: value.required?.includes(name) })));
}

function examples(media) {
  const { name, value } = resolve(media.schema);
  const all = Object.entries(media.examples ?? {}).map(([key, example]) => [resolve(example).value.summary ?? key, resolve(example).value.value]);
  if (media.example !== undefined) all.push(['Example', media.example]);
  if (!all.length && value.example !== undefined && !name) all.push(['Example', value.example]);
  return all.map(([title, example]) => element('details', {}, element('summary', {}, title), element('pre', {}, JSON.stringify(example, null, 2))));
}

function content(holder) {
  const media = Object.values(holder.content ?? {})[0];
  if (!media) return null;
  const { name } = resolve(media.schema);
  return [element('p', { class: 'type' }, 'Body: ', typeOf(media.schema ?? {})), name ? null : members(media.schema), examples(media)];
}

function operation(path, method, shared, op) {
  const parameters = [...(shared ?? []), ...(op.parameters ?? [])].map((parameter) => resolve(parameter).value);
  const credentials = (op.security ?? doc.security ?? []).flatMap((scheme) => Object.keys(scheme));
  const body = op.requestBody && resolve(op.requestBody).value;
  return element('article', { id: op.operationId, class: 'operation' },
    element('h3', {}, element('span', { class: 'method' }, method.toUpperCase()), ' ', element('span', { class: 'path' }, path)),
    element('p', { class: 'summary' }, op.summary, element('span', { class: 'type' }, credentials.length ? `Bearer: ${credentials.join(' or ')}` : 'no credential')),
    prose(op.description),
    parameters.length ? [element('h4', {}, 'Parameters'), rows(parameters.map((p) => ({ ...p, place: p.in })))] : null,
    body ? [element('h4', {}, body.required ? 'Request' : 'Request (optional)'), prose(body.description), content(body), members(Object.values(body.content)[0].schema)] : null,
    element('h4', {}, 'Answers'),
    element('ul', { class: 'answers' }, Object.entries(op.responses).map(([status, given]) => {
      const { value } = resolve(given);
      return element('li', {}, element('span', { class: `status ${status < 400 ? 'good' : ''}` }, status), element('div', {}, prose(value.description), status < 400 ? content(value) : null));
    })));
}

function codes() {
  const table = doc.components.schemas.ErrorCode?.['x-error-codes'];
  if (!table) return null;
  return [element('h2', { id: 'errors' }, 'Error codes'),
    element('p', { class: 'intro' }, 'Every error is ', element('code', {}, '{"error": "CODE: what to do next"}'), '.'),
    element('ul', { class: 'answers' }, table.map(({ code, status, when }) =>
      element('li', {}, element('span', { class: 'status' }, String(status)), element('div', {}, element('p', {}, element('code', {}, code)), element('p', {}, inline(when))))))];
}

function draw() {
  const operations = Object.entries(doc.paths).flatMap(([path, item]) =>
    ['get', 'post', 'put', 'delete'].filter((method) => item[method]).map((method) => ({ path, method, shared: item.parameters, op: item[method] })));
  const sections = doc.tags.map(({ name, description }) => ({ name, description, list: operations.filter(({ op }) => op.tags?.includes(name)) }));
  return [
    element('p', { class: 'type' }, `Interface version ${doc.info.version}`),
    element('details', {}, element('summary', {}, 'What holds for every call'), prose(doc.info.description)),
    element('nav', { class: 'contents', 'aria-label': 'Operations' }, element('ul', {}, operations.map(({ path, method, op }) =>
      element('li', {}, element('a', { href: `#${op.operationId}` }, element('span', { class: 'method' }, method.toUpperCase()), ` ${path}`))))),
    sections.map(({ name, description, list }) => element('section', { 'aria-labelledby': `tag-${name}` },
      element('h2', { id: `tag-${name}` }, name[0].toUpperCase() + name.slice(1)), prose(description),
      list.map(({ path, method, shared, op }) => operation(path, method, shared, op)))),
    element('section', { 'aria-labelledby': 'schemas' }, element('h2', { id: 'schemas' }, 'Schemas'),
      Object.entries(doc.components.schemas).filter(([name]) => name !== 'ErrorCode').map(([name, schema]) => element('article', { id: anchor(name), class: 'operation' },
        element('h3', {}, name), prose(schema.description), schema.properties ? members(schema) : element('p', { class: 'type' }, typeOf(schema), ' ', limits({ value: schema })),
        schema.example === undefined ? null : element('details', {}, element('summary', {}, 'Example'), element('pre', {}, JSON.stringify(schema.example, null, 2)))))),
    element('section', { id: anchor('ErrorCode') }, codes()),
  ];
}

const answer = await call('GET', '/openapi.json').catch((fault) => ({ ok: false, json: { error: fault.message } }));
if (answer.ok) {
  doc = answer.json;
  byId('reference').replaceChildren(...[draw()].flat(Infinity));
  if (location.hash) document.querySelector(`#${CSS.escape(location.hash.slice(1))}`)?.scrollIntoView();
} else {
  byId('reference').replaceChildren(element('p', {}, problemOf(answer)));
}
