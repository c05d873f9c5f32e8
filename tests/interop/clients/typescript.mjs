// What the drivers of both TypeScript SDKs share: commands in, one JSON object a line; what the caller of the SDK sees
// out, the same way.
import { createInterface } from 'node:readline';

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** What is the client's own in a thrown value, as far as it says. */
const failure = (error) => ({
  say: 'error',
  kind: error.constructor?.name,
  code: error.code,
  message: String(error.message).slice(0, 400),
  data: error.data,
});

/**
 * @param sdk `Client` and `Transport`, `call(client, params, options)` and `onLog(client, handler)`
 */
export async function drive(sdk) {
  const answers = new Map();
  const transport = new sdk.Transport(new URL(process.argv[2]));
  // Beneath the client, which would keep to itself that an answer came twice.
  transport.onmessage = (message) => {
    if (message.method === undefined && message.id !== undefined) {
      answers.set(message.id, (answers.get(message.id) ?? 0) + 1);
    }
  };
  const client = new sdk.Client({ name: 'interop', version: '1.0.0' }, { capabilities: {} });
  client.onerror = (error) => say({ say: 'trouble', message: String(error.message).slice(0, 400) });
  sdk.onLog(client, (notification) => say({ say: 'heard', text: notification.params.data }));
  try {
    await client.connect(transport);
  } catch (error) {
    say({ ...failure(error), key: 'open' });
    process.exit(0);
  }
  client.onclose = () => say({ say: 'transport_closed' });
  say({ say: 'ready' });

  const call = async ({ key, tool, arguments: args }) => {
    const began = performance.now();
    const ms = () => Math.round(performance.now() - began);
    try {
      const onprogress = ({ progress }) => say({ say: 'progress', key, step: progress });
      const result = await sdk.call(client, { name: tool, arguments: args ?? {} }, { onprogress });
      say({ say: 'result', key, text: result.content?.[0]?.text, is_error: result.isError ?? false, ms: ms() });
    } catch (error) {
      say({ ...failure(error), key, ms: ms() });
    }
  };

  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.do === 'close') break;
    // Not awaited: calls run side by side, as a host's do.
    void call(command);
  }
  client.onclose = undefined;
  await client.close();
  say({ say: 'closed', answers: [...answers] });
  process.exit(0);
}
