"use strict";
// Downloads: the files lie in the page, compressed, in base64.
async function unpack(id) {
  const text = document.getElementById(id).textContent.trim();
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const zipped = new Blob([raw]);
  if (typeof DecompressionStream === "undefined") return { blob: zipped, ending: ".gz" };
  const stream = zipped.stream().pipeThrough(new DecompressionStream("gzip"));
  return { blob: await new Response(stream).blob(), ending: "" };
}
for (const button of document.querySelectorAll("button[data-file]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const { blob, ending } = await unpack(button.dataset.file);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = button.dataset.name + ending;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
}
