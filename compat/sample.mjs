// sample makes a value that a JSON schema takes: the smallest that the keywords used by the published definitions allow.
export function sample(schema, definitions) {
  if (schema === true || schema === undefined) return "x";
  if (schema.$ref) return sample(definitions[schema.$ref.split("/").pop()], definitions);
  if ("const" in schema) return schema.const;
  if (schema.enum) return schema.enum[0];
  const one = schema.anyOf ?? schema.oneOf;
  if (one) return sample(one[0], definitions);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((s) => sample(s, definitions)));
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case "object":
      return object(schema, definitions);
    case "array":
      return Array.from({ length: schema.minItems ?? 0 }, () => sample(schema.items, definitions));
    case "integer":
    case "number":
      return schema.minimum ?? (schema.exclusiveMinimum !== undefined ? schema.exclusiveMinimum + 1 : Math.min(1, schema.maximum ?? 1));
    case "boolean":
      return false;
    case "null":
      return null;
    default:
      return words(schema);
  }
}

function object(schema, definitions) {
  return Object.fromEntries((schema.required ?? []).map((name) => [name, sample(schema.properties?.[name], definitions)]));
}

// words tries texts until the pattern takes one.
function words(schema) {
  const long = "x".repeat(schema.minLength ?? 1);
  const texts = [long, "main", "0", "a/b", "https://example.org/", "2026-01-01T00:00:00.000Z", "0".repeat(64), "1".repeat(16), "sha256:" + "0".repeat(64), "A1"];
  const fits = (t) => (!schema.pattern || new RegExp(schema.pattern, "u").test(t)) && t.length >= (schema.minLength ?? 0) && t.length <= (schema.maxLength ?? Infinity);
  return texts.find(fits) ?? long;
}
