// Text files that go with a message: dropped, pasted or chosen. What is no text is refused.

const kMaxFileBytes = 1 << 20;
const kMaxFiles = 20;
let files = [];  // of the message that is being written

async function readTextFile(file) {
  if (file.size > kMaxFileBytes) throw new Error(`${file.name}: ${formatBytes(file.size)}; at most ${formatBytes(kMaxFileBytes)} are taken`);
  let text;
  try {
    text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name}: not a text in UTF-8; only text files are taken`);
  }
  if (text.includes("\0")) throw new Error(`${file.name}: not a text; only text files are taken`);
  return {name: file.name, text};
}

async function addFiles(list) {
  for (const file of list) {
    try {
      if (files.length >= kMaxFiles) throw new Error(`${file.name}: at most ${kMaxFiles} files go with a message`);
      files.push(await readTextFile(file));
    } catch (error) {
      notify(error.message, {isError: true});
    }
  }
  showFiles();
  byId("text").focus();
}

function showFiles() {
  byId("files").replaceChildren(...files.map((file) => {
    const remove = makeButton("close", `Leave out ${file.name}`, () => {
      files = files.filter((each) => each !== file);
      showFiles();
    });
    return make("li", {}, make("span", {}, file.name), make("small", {}, formatBytes(new Blob([file.text]).size)), remove);
  }));
}

function hasFiles(event) {
  return [...(event.dataTransfer?.types ?? [])].includes("Files");
}

byId("attach").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", () => {
  addFiles([...byId("file").files]);
  byId("file").value = "";
});
addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  byId("drop").hidden = false;
});
addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) byId("drop").hidden = true;
});
addEventListener("drop", (event) => {
  byId("drop").hidden = true;
  if (!hasFiles(event)) return;
  event.preventDefault();
  addFiles([...event.dataTransfer.files]);
});
// Office programs put a picture of a text beside the text.
byId("text").addEventListener("paste", (event) => {
  const {files: pasted, types} = event.clipboardData;
  const isText = types.includes("text/plain") && [...pasted].every((each) => each.type.startsWith("image/"));
  if (pasted.length === 0 || isText) return;
  event.preventDefault();
  addFiles([...pasted]);
});
