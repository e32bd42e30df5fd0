// Where conversations are kept: in the browser's IndexedDB, the list of titles apart, as
// conversations may be long. Without it (private windows of some browsers) they last as long as
// the tab, and the user is told so. So is a quota that is full.

const kTitles = "titles", kConversations = "conversations";

function asPromise(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function whenDone(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error("the browser has given it up"));
  });
}

function summaryOf({id, title, updated}) {
  return {id, title, updated};
}

// The same calls for a tab alone.
class MemoryStore {
  constructor() {
    this.all = new Map();
  }
  async titles() { return [...this.all.values()].map(summaryOf); }
  async read(id) { return structuredClone(this.all.get(id)); }
  async write(conversation) { this.all.set(conversation.id, structuredClone(conversation)); }
  async remove(id) { this.all.delete(id); }
}

class BrowserStore {
  static async open() {
    const request = indexedDB.open("wideep-chat", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(kTitles, {keyPath: "id"});
      request.result.createObjectStore(kConversations, {keyPath: "id"});
    };
    const store = new BrowserStore();
    store.database = await asPromise(request);
    return store;
  }
  begin(mode) {
    return this.database.transaction([kTitles, kConversations], mode);
  }
  titles() { return asPromise(this.begin("readonly").objectStore(kTitles).getAll()); }
  read(id) { return asPromise(this.begin("readonly").objectStore(kConversations).get(id)); }
  write(conversation) {
    const transaction = this.begin("readwrite");
    transaction.objectStore(kTitles).put(summaryOf(conversation));
    transaction.objectStore(kConversations).put(conversation);
    return whenDone(transaction);
  }
  remove(id) {
    const transaction = this.begin("readwrite");
    transaction.objectStore(kTitles).delete(id);
    transaction.objectStore(kConversations).delete(id);
    return whenDone(transaction);
  }
}

let store = new MemoryStore();
const otherTabs = new BroadcastChannel("wideep-chat");

async function openStore() {
  try {
    store = await BrowserStore.open();
  } catch (error) {
    notify(`This browser keeps no conversations (${error.message}): they end with this tab. Export what you need.`, {isError: true});
  }
}

// Tells, and goes on, if the browser cannot keep it. Whether it does.
async function keep(conversation) {
  try {
    await store.write(conversation);
    otherTabs.postMessage(conversation.id);
    return true;
  } catch (error) {
    const isFull = error.name === "QuotaExceededError";
    notify(isFull ? "Not kept: this browser's storage for the page is full. Export and delete old conversations."
                  : `Not kept: ${error.message}. Export the conversation.`, {isError: true});
    return false;
  }
}
