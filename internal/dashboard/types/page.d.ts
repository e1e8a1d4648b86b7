// Types that several modules of the page share. What the gateway sends is in wire.d.ts.

declare namespace page {
  type Method = keyof wire.Calls;
  type Result<M extends Method> = wire.Calls[M]["result"];
  // Given are the arguments after the name of a method: its parameters, which may be left out when none of them is required.
  type Given<M extends Method> = {} extends wire.Calls[M]["params"] ? [params?: wire.Calls[M]["params"]] : [params: wire.Calls[M]["params"]];
  type Call = <M extends Method>(method: M, ...given: Given<M>) => Promise<Result<M>>;
  // Members are the names of the lists in a result.
  type Members<M extends Method> = { [K in keyof Result<M>]: Result<M>[K] extends any[] ? K : never }[keyof Result<M>];
  type List = <M extends Method, K extends Members<M>>(method: M, member: K, params?: wire.Calls[M]["params"], most?: number) => Promise<Result<M>[K]>;
  type Http = (path: string, options?: { method?: string; body?: FormData }) => Promise<Response>;

  // An event of the gateway, and reconnected, which the page adds.
  type Listener = (...event: { [E in keyof wire.Events]: [name: E, payload: wire.Events[E]] }[keyof wire.Events] | [name: "reconnected", payload: { sessionKey?: undefined }]) => void;

  interface Link {
    state: "" | "connecting" | "live" | "stale" | "offline" | "paused";
    since?: number;
    why?: string;
    retryAt?: number;
  }
  interface Hooks {
    up(hello: wire.HelloOK): void;
    link(link: Link): void;
    refused(why: string): void;
    event: Listener;
  }
  interface Me {
    name: string;
    scopes: string[];
    methods: string[];
    mainKey: string;
  }
  type Conversation = import("../web/conversation.js").Conversation;
  type Signal<T> = import("../web/vendor/signals.js").Signal<T>;
  type Input = { target: { value: string } };

  // ToolCall is a call of a tool as its events show it.
  interface ToolCall {
    id: string;
    name: string;
    from: number;
    ms?: number;
    args?: unknown;
    result?: unknown;
    bad?: boolean;
  }
  // Message is a row of a conversation: of the transcript when it has a seq, or sent from here, or growing.
  interface Message {
    id: string;
    run?: string;
    seq?: number;
    role: wire.HistoryMessage["role"];
    text: Signal<string>;
    more?: number;
    at?: number;
    command?: boolean;
    files?: wire.MessageFile[];
    origin?: wire.Origin;
    tool?: boolean;
    tools?: Signal<ToolCall[]>;
    bad?: boolean;
    note?: string;
    growing?: boolean;
    ended?: boolean;
    since?: number;
    from?: number;
    unsent?: "sending" | "lost" | "failed";
    answers?: number;
    chosen?: File[];
    attach?: () => Promise<{ fileId: string }[]>;
  }
  // Answer is that of cron.explain about a time, asked in words.
  type Answer = wire.CronExplainResult & { asked: string };
  // Undo takes the last action back until a time.
  interface Undo {
    text: string;
    until: number;
    back: () => Promise<void>;
  }
  // Jobs is one page of the list; asked are the words of the address.
  interface Jobs {
    asked: { sort: keyof typeof import("../web/jobs.js").ORDERS; only: string; find: string; after: string };
    ids: string[];
    counts?: wire.JobCounts;
    total: number;
    next: string;
  }
  // Draft is a job as its form has it.
  type Draft = ReturnType<typeof import("../web/jobdraft.js").empty>;
  // Asked is what a dialog asks about a job; an Ask opens it.
  type Asked = "pause" | "run" | "remove" | "command" | "backfill";
  type Ask = (kind: Asked, job: wire.Job, slot?: number) => unknown;
  // Row is one row of a table.
  interface Row {
    id: string;
    cells: any[];
    acts?: any;
    hit?: boolean; // the address names it
  }
  // Question is a token from a link that waits for the person.
  interface Question extends Me {
    kept: boolean;
    take(): void;
    leave(): void;
  }
}
