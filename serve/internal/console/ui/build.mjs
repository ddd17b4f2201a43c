// Builds the console: node build.mjs OUT. Esbuild is found through the working directory.
import { createRequire } from "node:module";
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const esbuild = createRequire(join(process.cwd(), "package.json"))("esbuild");
const out = process.argv[2];
mkdirSync(out, { recursive: true });
await esbuild.build({
  entryPoints: { "console": "src/main.tsx" }, outdir: out, bundle: true, minify: true, format: "iife", target: "es2022",
  jsx: "automatic", jsxImportSource: "preact", charset: "utf8", legalComments: "none", logLevel: "warning",
});
await esbuild.build({ entryPoints: ["src/console.css"], outdir: out, minify: true, target: "es2022", logLevel: "warning" });
for (const file of ["index.html", "icon.svg"]) copyFileSync(file, join(out, file));
