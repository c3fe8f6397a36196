import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";

/**
 * Makes a message from an object. Throws TypeError for a field, a oneof's case or an enum's value that does not exist,
 * where protobuf's `create` would ignore a field: the call would then compute something else.
 */
export function message<D extends DescMessage>(schema: D, init: MessageInitShape<D>): MessageShape<D> {
  check(schema, init, schema.name);
  return create(schema, init);
}

function check(schema: DescMessage, init: unknown, path: string): void {
  if (typeof init !== "object" || init === null) {
    throw new TypeError(`${path} is ${JSON.stringify(init)}, must be an object with fields of ${schema.typeName}`);
  }
  for (const [name, value] of Object.entries(init)) {
    if (name === "$typeName" || name === "$unknown" || value === undefined) continue;
    const at = `${path}.${name}`;
    const oneof = schema.oneofs.find((oneof) => oneof.localName === name);
    if (oneof) {
      if (value.case === undefined) continue;
      const field = oneof.fields.find((field) => field.localName === value.case);
      if (!field)
        throw unknown(
          `${at}.case`,
          value.case,
          oneof.fields.map((field) => field.localName),
        );
      checkField(field, value.value, `${at}.value`);
      continue;
    }
    const field = schema.field[name];
    // Fields of a oneof are not fields of the object.
    if (!field || field.oneof) {
      const names = schema.members.map((member) => member.localName);
      throw new TypeError(`${at} does not exist; ${schema.typeName} has: ${names.join(", ")}`);
    }
    checkField(field, value, at);
  }
}

function checkField(field: DescField, value: unknown, path: string): void {
  if (field.fieldKind === "message") check(field.message, value, path);
  if (field.fieldKind === "enum") checkEnum(field.enum, value, path);
  if (field.fieldKind === "list") {
    if (!Array.isArray(value)) throw new TypeError(`${path} must be an array`);
    if (field.listKind === "message") value.forEach((item, i) => check(field.message, item, `${path}[${i}]`));
    if (field.listKind === "enum") value.forEach((item, i) => checkEnum(field.enum, item, `${path}[${i}]`));
  }
}

function checkEnum(type: DescEnum, value: unknown, path: string): void {
  if (type.values.some((known) => known.number === value)) return;
  throw unknown(
    path,
    value,
    type.values.map((known) => `${type.name}.${known.localName}`),
  );
}

function unknown(path: string, value: unknown, choices: string[]): TypeError {
  return new TypeError(`${path} is ${JSON.stringify(value)}, must be one of ${choices.join(", ")}`);
}
