/** Written by tools/pages.py from core/presentation.py: the characters that hide or reorder text. */

export const HIDDEN =
  /[\u{0}-\u{8}\u{b}-\u{1f}\u{7f}-\u{9f}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{2800}\u{3164}\u{fe00}-\u{fe0d}\u{feff}\u{ffa0}\u{fff0}-\u{fffb}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|(?<![\u{a9}\u{ae}\u{203c}-\u{3299}\u{1f000}-\u{1faff}])[\u{fe0e}\u{fe0f}](?!\u{20e3})/gu;
