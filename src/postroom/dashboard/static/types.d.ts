/** What the service answers, as far as the page reads it. */

export type Priority = "low" | "normal" | "high" | "urgent";

export interface Entry {
  what: "escalation" | "question" | "task" | "letter" | "news" | "sent" | "new";
  id: string;
  letter: string;
  since: string;
  from: string;
  subject: string;
  text: string;
  priority: Priority;
  answer?: string;
  thread: string;
  state: string | null;
  due_at: string | null;
  read: boolean | null;
  mailbox: string;
}

export interface Action {
  key: string;
  name: string;
  asks: string;
  optional: boolean;
}

export interface ActionTable {
  keys: Record<string, string>;
  offered: Record<string, Action[]>;
  gone: string;
}

export interface Summary {
  number: number;
  id: string;
  from: string;
  to: string[];
  more_to: number;
  subject: string;
  line: string;
  kind: string;
  priority: Priority;
  at: string;
  thread: string;
  reply_to: string | null;
  scope: string;
  parts: number;
  characters: number;
  proven: boolean;
  state: string | null;
}

export interface Part {
  type: string;
  [field: string]: any;
}

export interface Message {
  id: string;
  sender: string;
  recipients: { address: string; kind: string }[];
  parts: Part[];
  subject: string;
  kind: string;
  priority: Priority;
  created_at: string;
  in_reply_to: string | null;
  thread: string;
  text: string;
  proof: object | null;
  proven: boolean;
  tags: string[];
  scope: string;
  task: object | null;
  attachments: string[];
}

export interface Stop {
  mailbox: string;
  kind: string;
  state: string;
  attempts?: number;
  delivered_at?: string | null;
  read_at?: string | null;
  acked_at?: string | null;
  dead_at?: string | null;
  due_at?: string | null;
  holder?: string | null;
  reason?: string | null;
  history?: { at?: string; holder?: string; reason?: string }[];
}

export interface Trace {
  letter: Message;
  number: number;
  stops: Stop[];
  replies: Message[];
  relays: Message[];
  bounces: Message[];
}

export interface Queue {
  agent: string;
  scopes: string[];
  status: string | null;
  last_active_at: string | null;
  tasks: number;
  registered: boolean;
  unread: number;
  backlog: number;
  claimed: number;
  queued: number;
  dead: number;
  oldest_unread_at: string | null;
  oldest_claimed_at: string | null;
}

export interface Task {
  id: string;
  subject: string;
  giver: string;
  receiver: string;
  state: string;
  thread: string;
  opened_at: string;
  moved_at: string;
  deadline: string | null;
  last: string;
  is_final: boolean;
}

export interface DeadGroup {
  mailbox: string;
  reason: string;
  count: number;
}

export interface DeadLetter extends Message {
  delivery: {
    mailbox: string;
    state: string;
    reason: string | null;
    attempts: number;
    history: { at?: string; reason?: string; holder?: string }[];
    dead_at: string;
    number: number;
    arrived?: number;
  };
}

export interface Tick {
  at: string;
  number: number;
  sent: number;
  settled: number;
  died: number;
  pairs: [number, number, number][];
  names: string[];
  from: number;
  waits: number;
  missed?: boolean;
}

/** A view: what `main` needs of each. */
export interface View {
  title: string;
  /** Called when its address is opened, or its filters change. */
  enter(place: import("./app.js").Place): void;
  leave?(): void;
  /** Called when the connection is open again, and when the service says that something happened. */
  refresh(): void;
  template(): unknown;
  key?(name: string): boolean;
  commands?(): { name: string; key: string; run: () => void }[];
  focus?(): void;
  /** When its answer came. */
  at(): number;
}
