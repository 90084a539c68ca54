// The interface for people to read, drawn from the OpenAPI document.

const box = document.getElementById("operations");
const described = await (await fetch("/openapi.json")).json();

const resolve = (schema) =>
  schema?.$ref ? described.components.schemas[schema.$ref.split("/").at(-1)] : schema;

function kind(schema) {
  if (schema.$ref) return kind(resolve(schema));
  if (schema.anyOf) return [...new Set(schema.anyOf.map(kind))].join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kind(schema.items ?? {})}`;
  if (schema.properties) return `{ ${Object.keys(schema.properties).join(", ")} }`;
  return schema.type ?? "anything";
}

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function table(title, rows) {
  const body = element("table");
  for (const cells of rows) {
    const line = element("tr");
    line.append(...cells.map((text) => element("td", text)));
    body.append(line);
  }
  const wide = element("div", "", "wide");
  wide.append(body);
  return rows.length ? [element("h3", title), wide] : [];
}

function fields(schema, isRequest) {
  const whole = resolve(schema);
  return Object.entries(whole?.properties ?? {}).map(([name, field]) => {
    const note = !isRequest ? "" : whole.required?.includes(name) ? "required. " : "default" in field ? `default ${JSON.stringify(field.default)}. ` : "";
    return [name, kind(field), note + (field.description ?? "")];
  });
}

for (const [path, methods] of Object.entries(described.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const card = element("section", "", "card");
    const head = element("h2");
    head.append(element("span", method.toUpperCase(), "method"), ` ${path}`);
    const body = operation.requestBody?.content["application/json"].schema;
    const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
    const parameters = (operation.parameters ?? []).map((one) => [one.name, kind(one.schema), one.description ?? ""]);
    const errors = Object.entries(operation.responses).filter(([status]) => status >= "400");
    card.append(
      head, element("p", operation.description ?? operation.summary),
      ...table("Request", body ? fields(body, true) : parameters), ...table("Answer", answer ? fields(answer, false) : []),
      ...table("Errors", errors.map(([status, one]) => [status, one.description])),
    );
    box.append(card);
  }
}
