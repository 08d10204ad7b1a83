/** The types of what the page uses of lit-html, for `tsc`. Written here; the package's own files stand beside it, unmodified. */

export interface TemplateResult {
  strings: TemplateStringsArray;
  values: unknown[];
}
export const html: (strings: TemplateStringsArray, ...values: unknown[]) => TemplateResult;
export const nothing: unique symbol;
export const render: (value: unknown, container: HTMLElement | DocumentFragment) => unknown;
